package credential

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// admit presents a claim, signed.
func admit(t testing.TB, g *Gatekeeper, c Claim, a Attempt) (Admission, string) {
	t.Helper()
	got, err := g.Admit(t.Context(), g.Secret.Issue(c), a, ranks(maxRank))
	if err != nil {
		require.NotEmpty(t, cause(err), "a verdict, not %v", err)
	}
	return got, cause(err)
}

func TestPresentedAgain(t *testing.T) {
	tests := []struct {
		name          string
		first, second Attempt
		between       func(*Gatekeeper, Claim)
		cause         string
	}{
		{"same attempt", attempt("a"), attempt("a"), nil, ""},
		{"another attempt", attempt("a"), attempt("b"), nil, CauseAttempt},
		{"then none", attempt("a"), nil, nil, CauseReplayed},
		{"none, then one", nil, attempt("a"), nil, CauseReplayed},
		{"none twice", nil, nil, nil, CauseReplayed},
		{"used", attempt("a"), attempt("a"), func(g *Gatekeeper, c Claim) { g.Fence.Used(c) }, CauseUsed},
		{"another's use", attempt("a"), attempt("a"), func(g *Gatekeeper, c Claim) { c.Epoch++; g.Fence.Used(c) }, ""},
		{"resumed", attempt("a"), attempt("a"), func(g *Gatekeeper, c Claim) {
			c.Nonce = ResumeNonce(1)
			_, cause := admit(t, g, c, attempt("a"))
			require.Empty(t, cause)
		}, CauseUsed},
		{"another rank resumed", attempt("a"), attempt("a"), func(g *Gatekeeper, c Claim) {
			c.Rank++
			for _, c.Nonce = range []string{NewNonce(), ResumeNonce(1)} {
				_, cause := admit(t, g, c, attempt("a"))
				require.Empty(t, cause)
			}
		}, ""},
		{"a second first credential came", attempt("a"), attempt("a"), func(g *Gatekeeper, c Claim) {
			c.Nonce = NewNonce()
			_, cause := admit(t, g, c, attempt("b"))
			require.Empty(t, cause)
		}, CauseReplayed},
		{"a second first credential came, and its attempt tries the first", attempt("a"), attempt("b"), func(g *Gatekeeper, c Claim) {
			c.Nonce = NewNonce()
			_, cause := admit(t, g, c, attempt("b"))
			require.Empty(t, cause)
		}, CauseAttempt},
		{"floor rose", attempt("a"), attempt("a"), func(g *Gatekeeper, c Claim) {
			require.NoError(t, g.Fence.Raise(t.Context(), c.Allocation, c.Epoch+1))
		}, CauseStaleEpoch},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGatekeeper(t)
			c := claim()
			_, why := admit(t, g, c, tt.first)
			require.Empty(t, why)
			if tt.between != nil {
				tt.between(g, c)
			}
			for range 3 { // and it stays so
				got, why := admit(t, g, c, tt.second)
				require.Equal(t, tt.cause, why)
				require.Equal(t, tt.cause == "", got.Again)
			}
		})
	}
}

func TestResume(t *testing.T) {
	g := newGatekeeper(t)
	c := claim()
	_, why := admit(t, g, c, attempt("a"))
	require.Empty(t, why)

	resume := func(n uint64) Claim { r := c; r.Nonce = ResumeNonce(n); return r }
	second := resume(2)
	_, why = admit(t, g, second, attempt("b"))
	require.Equal(t, CauseAttempt, why, "another attempt")
	_, why = admit(t, g, second, nil)
	require.Equal(t, CauseAttempt, why, "no attempt")

	got, why := admit(t, g, second, attempt("a"))
	require.Empty(t, why)
	require.EqualValues(t, 2, got.Resume)
	require.EqualValues(t, 3, got.Next)
	require.False(t, got.Again)

	for _, n := range []uint64{1, 2} {
		_, why = admit(t, g, resume(n), attempt("a"))
		require.Equal(t, CauseResume, why, "number %d is overtaken", n)
	}
	got, why = admit(t, g, second, attempt("a"))
	require.Empty(t, why, "the very same nonce, its answer lost")
	require.True(t, got.Again)
	g.Fence.Used(second)
	_, why = admit(t, g, second, attempt("a"))
	require.Equal(t, CauseUsed, why)

	_, why = admit(t, g, resume(7), attempt("a"))
	require.Empty(t, why, "gaps are fine")
	_, why = admit(t, g, second, attempt("a"))
	require.Equal(t, CauseUsed, why)

	other := resume(8)
	other.Epoch++
	_, why = admit(t, g, other, attempt("a"))
	require.Equal(t, CauseResume, why, "of an epoch in which the rank was never admitted")
	other = resume(8)
	other.Rank++
	_, why = admit(t, g, other, attempt("a"))
	require.Equal(t, CauseResume, why, "of a rank that was never admitted")

	// A rank that starts anew takes over, and counts on.
	fresh := c
	fresh.Nonce = NewNonce()
	got, why = admit(t, g, fresh, attempt("new"))
	require.Empty(t, why)
	require.EqualValues(t, 8, got.Next)
	_, why = admit(t, g, resume(8), attempt("a"))
	require.Equal(t, CauseAttempt, why)
	_, why = admit(t, g, resume(8), attempt("new"))
	require.Empty(t, why)
}

func TestResumeWithoutAnAttemptNever(t *testing.T) {
	g := newGatekeeper(t)
	c := claim()
	_, why := admit(t, g, c, nil)
	require.Empty(t, why)
	c.Nonce = ResumeNonce(1)
	_, why = admit(t, g, c, nil)
	require.Equal(t, CauseAttempt, why)
}

func TestFloorSurvivesAndOnlyRises(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := openStore(t, path)
	f, err := OpenFence(db)
	require.NoError(t, err)
	for _, step := range []struct{ raise, floor int64 }{{2, 2}, {1, 2}, {-5, 2}, {5, 5}, {5, 5}, {math.MaxInt64, math.MaxInt64}, {0, math.MaxInt64}} {
		require.NoError(t, f.Raise(t.Context(), "alloc_01", step.raise))
		require.Equal(t, step.floor, f.Floor("alloc_01"))
	}
	require.Zero(t, f.Floor("alloc_02"))
	require.NoError(t, db.Close())

	f, err = OpenFence(openStore(t, path))
	require.NoError(t, err)
	require.EqualValues(t, math.MaxInt64, f.Floor("alloc_01"))
}

// Texts that could be taken for one another as keys are kept apart.
func TestKeysAreDistinct(t *testing.T) {
	long := strings.Repeat("x", 2*maxKeyText)
	allocations := []string{"a", "a\x00", "a\x00\x00", "a\x00\x00\x00\x00\x00\x00\x00\x00\x01b", "ab", long, long + "y", "\x00", "é", "a\x00é"}
	nonces := []string{"n", "n\x00", long, long + "y", "\x00\x00\x00\x00\x00\x00\x00\x01n"}
	seen := map[string]string{}
	for _, a := range allocations {
		for _, n := range nonces {
			for _, e := range []int64{0, 1, 255, 256, math.MaxInt64} {
				c := Claim{Allocation: a, Epoch: e, Nonce: n}
				key := burnedKey(c)
				name := fmt.Sprintf("%.20q %d %.20q %d %d", a, e, n, len(a), len(n))
				require.Less(t, len(key), bbolt.MaxKeySize)
				require.Empty(t, seen[string(key)], name)
				seen[string(key)] = name
				allocation, epoch, rest, ok := splitKey(key)
				require.True(t, ok, name)
				require.Equal(t, allocationKey(a), allocation, name)
				require.Equal(t, e, epoch, name)
				require.Equal(t, appendText(nil, n), rest, name)
			}
		}
	}
}

func TestSplitKeyRefuses(t *testing.T) {
	for _, k := range []string{"", "a", "a\x00", "a\x00\x00\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00\x00", "a\x00\x80\x00\x00\x00\x00\x00\x00\x00", "\xffshort", "a\x00\xff"} {
		_, _, _, ok := splitKey([]byte(k))
		require.False(t, ok, "%q", k)
	}
}

func TestOpenFenceRefusesDamage(t *testing.T) {
	tests := map[string]func(*bbolt.Tx) error{
		"bucket gone": func(tx *bbolt.Tx) error { return tx.DeleteBucket(ranksBucket) },
		"burn cut": func(tx *bbolt.Tx) error {
			return tx.Bucket(burnedBucket).Put(burnedKey(claim()), []byte{recordVersion})
		},
		"burn from the future": func(tx *bbolt.Tx) error {
			v := use{expires: 1}.encode()
			v[0] = recordVersion + 1
			return tx.Bucket(burnedBucket).Put(burnedKey(claim()), v)
		},
		"burn that never expires": func(tx *bbolt.Tx) error {
			return tx.Bucket(burnedBucket).Put(burnedKey(claim()), use{expires: math.Inf(1)}.encode())
		},
		"key of nothing": func(tx *bbolt.Tx) error {
			return tx.Bucket(burnedBucket).Put([]byte("x"), use{expires: 1}.encode())
		},
		"rank cut": func(tx *bbolt.Tx) error { return tx.Bucket(ranksBucket).Put(rankKey(claim()), []byte{recordVersion}) },
		"floor negative": func(tx *bbolt.Tx) error {
			return tx.Bucket(allocationsBucket).Put([]byte("a"), allocationRecord{floor: -1}.encode())
		},
		"floor cut": func(tx *bbolt.Tx) error { return tx.Bucket(allocationsBucket).Put([]byte("a"), nil) },
		"horizon not a number": func(tx *bbolt.Tx) error {
			return tx.Bucket(fenceBucket).Put(horizonKey, encodeSeconds(math.NaN()))
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			db := newStore(t)
			_, err := OpenFence(db)
			require.NoError(t, err)
			require.NoError(t, db.Update(damage))
			_, err = OpenFence(db)
			require.ErrorIs(t, err, ErrFenceCorrupt)
			require.ErrorContains(t, err, db.Path())
		})
	}
}

// Damage that comes while the daemon runs stops every admission, and no probe lifts that.
func TestDamageWhileRunning(t *testing.T) {
	db := newStore(t)
	f, err := OpenFence(db)
	require.NoError(t, err)
	run(t, f)
	g := &Gatekeeper{Secret: testSecret("a"), Fence: f, Now: at(fixedNow)}
	c := claim()
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(ranksBucket).Put(rankKey(c), []byte("rubbish"))
	}))
	_, err = g.Admit(t.Context(), g.Secret.Issue(c), attempt("a"), ranks(4))
	require.ErrorIs(t, err, ErrFenceCorrupt)
	require.ErrorIs(t, f.Healthy(), ErrFenceCorrupt)
	f.probe()
	c.Rank = 2
	_, err = g.Admit(t.Context(), g.Secret.Issue(c), attempt("a"), ranks(4))
	require.ErrorIs(t, err, ErrFence)
}
