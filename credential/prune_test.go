package credential

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

func secs(s float64) time.Time { return at(s)() }

// counts returns how many records each bucket holds.
func counts(t testing.TB, db ledger) (burned, ranks, allocations int) {
	t.Helper()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		burned = tx.Bucket(burnedBucket).Stats().KeyN
		ranks = tx.Bucket(ranksBucket).Stats().KeyN
		allocations = tx.Bucket(allocationsBucket).Stats().KeyN
		return nil
	}))
	return burned, ranks, allocations
}

func prune(t testing.TB, f *Fence, now float64) int {
	t.Helper()
	n, err := f.Prune(t.Context(), secs(now))
	require.NoError(t, err)
	return n
}

func TestPruneForgetsWhatIsExpired(t *testing.T) {
	g, l := newFaulty(t)
	run(t, g.Fence)
	for rank := range 3 {
		c := claim()
		c.Rank, c.Expires = rank, fixedExpiry+float64(rank)
		_, why := admit(t, g, c, attempt("a"))
		require.Empty(t, why)
		g.Fence.Used(c)
	}
	require.Zero(t, prune(t, g.Fence, fixedExpiry-1))
	require.Equal(t, 1, prune(t, g.Fence, fixedExpiry+0), "equal is expired")
	burned, ranks, allocations := counts(t, l)
	require.Equal(t, []int{2, 3, 1}, []int{burned, ranks, allocations}, "ranks stay while one of theirs may resume")
	require.Equal(t, 2+3+1, prune(t, g.Fence, fixedExpiry+2))
	burned, ranks, allocations = counts(t, l)
	require.Zero(t, burned+ranks+allocations)
	require.Empty(t, g.Fence.allocations)
	require.Empty(t, g.Fence.used)
	require.Zero(t, prune(t, g.Fence, fixedExpiry+2))
}

func TestPruneForgetsWhatIsBelowTheFloor(t *testing.T) {
	g, l := newFaulty(t)
	run(t, g.Fence)
	old, next := claim(), claim()
	next.Epoch++
	for _, c := range []Claim{old, next} {
		_, why := admit(t, g, c, attempt("a"))
		require.Empty(t, why)
		g.Fence.Used(c)
	}
	require.NoError(t, g.Fence.Raise(t.Context(), old.Allocation, next.Epoch))
	require.Equal(t, 2, prune(t, g.Fence, fixedNow), "its burn and its rank")
	burned, ranks, allocations := counts(t, l)
	require.Equal(t, []int{1, 1, 1}, []int{burned, ranks, allocations})
	require.Len(t, g.Fence.used, 1)
	_, why := admit(t, g, old, attempt("a"))
	require.Equal(t, CauseStaleEpoch, why)
	_, why = admit(t, g, next, attempt("b"))
	require.Equal(t, CauseAttempt, why)
}

// The floor of a fenced allocation stays until its last credential, presented or not, has expired.
func TestPruneKeepsFloorsWhileTheyMatter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := openStore(t, path)
	f, err := OpenFence(db)
	require.NoError(t, err)
	g := &Gatekeeper{Secret: testSecret("a"), Fence: f, Now: at(fixedNow)}
	kept := claim()
	lines, err := g.Issue(t.Context(), kept.Allocation, kept)
	require.NoError(t, err)
	require.NoError(t, f.Raise(t.Context(), kept.Allocation, math.MaxInt64))
	require.NoError(t, f.Raise(t.Context(), "alloc_unknown", 4))

	require.Zero(t, prune(t, f, fixedExpiry-1))
	require.EqualValues(t, math.MaxInt64, f.Floor(kept.Allocation))
	require.Equal(t, 1, prune(t, f, fixedExpiry+rememberStep))
	require.Zero(t, f.Floor(kept.Allocation))
	require.EqualValues(t, 4, f.Floor("alloc_unknown"), "nothing is known of its credentials")

	// Even a clock that is set back lets the forgotten one in no more, after a restart neither.
	run(t, f)
	_, err = g.Admit(t.Context(), lines[0], attempt("a"), ranks(4))
	require.Equal(t, CauseExpired, cause(err))
	require.NoError(t, db.Close())
	g.Fence, err = OpenFence(openStore(t, path))
	require.NoError(t, err)
	run(t, g.Fence)
	_, err = g.Admit(t.Context(), lines[0], attempt("a"), ranks(4))
	require.Equal(t, CauseExpired, cause(err))

	later := claim()
	later.Expires = fixedExpiry + 2*rememberStep
	_, err = g.Admit(t.Context(), g.Secret.Issue(later), attempt("a"), ranks(4))
	require.NoError(t, err, "one issued for longer passes")
}

// A burn that was forgotten before its allocation was bars its like by expiry alone.
func TestPrunedBurnStaysBarredWhenTheClockIsSetBack(t *testing.T) {
	g, l := newFaulty(t)
	run(t, g.Fence)
	c := claim()
	require.NoError(t, g.Fence.Remember(t.Context(), c.Allocation, fixedExpiry+10*rememberStep))
	_, why := admit(t, g, c, attempt("a"))
	require.Empty(t, why)
	require.Equal(t, 1, prune(t, g.Fence, fixedExpiry))
	_, why = admit(t, g, c, attempt("b")) // the gatekeeper's clock still says fixedNow
	require.Equal(t, CauseExpired, why)
	reopened, err := openFence(l)
	require.NoError(t, err)
	require.True(t, reopened.forgot(fixedExpiry))
	require.False(t, reopened.forgot(fixedExpiry+1))
}

func TestRememberIsOneWriteAnHour(t *testing.T) {
	g, l := newFaulty(t)
	for i := range 100 {
		require.NoError(t, g.Fence.Remember(t.Context(), "alloc_01", 7*rememberStep-100+float64(i)))
	}
	require.EqualValues(t, 1, l.commits.Load())
	require.NoError(t, g.Fence.Remember(t.Context(), "alloc_01", 7*rememberStep+1))
	require.EqualValues(t, 2, l.commits.Load())
	require.NoError(t, g.Fence.Remember(t.Context(), "alloc_01", 5))
	require.EqualValues(t, 2, l.commits.Load())
	require.Error(t, g.Fence.Remember(t.Context(), "alloc_01", math.NaN()))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Fence.Remember(ctx, "alloc_01", 9*rememberStep), context.Canceled)
	require.ErrorIs(t, g.Fence.Raise(ctx, "alloc_01", 9), context.Canceled)
	require.NoError(t, g.Fence.Healthy())
}

// Pruning much takes many small transactions, and leaves what lives.
func TestPruneIsBounded(t *testing.T) {
	g, l := newFaulty(t)
	const dead, live = 3*pruneStep + 7, 11
	fill(t, l.DB, "alloc_dead", dead, fixedNow-1)
	fill(t, l.DB, "alloc_live", live, fixedExpiry)
	l.commits.Store(0)
	require.Equal(t, dead, prune(t, g.Fence, fixedNow))
	require.GreaterOrEqual(t, l.commits.Load(), int64(4))
	burned, _, _ := counts(t, l)
	require.Equal(t, live, burned)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := g.Fence.Prune(ctx, secs(fixedNow))
	require.ErrorIs(t, err, context.Canceled)
}

func TestPruneOfASickFenceForgetsNothing(t *testing.T) {
	g, l := newFaulty(t)
	fill(t, l.DB, "alloc_dead", 5, fixedNow-1)
	g.Fence.fail(fmt.Errorf("disk gone"))
	_, err := g.Fence.Prune(t.Context(), secs(fixedNow))
	require.ErrorIs(t, err, ErrFenceUnhealthy)
	burned, _, _ := counts(t, l)
	require.Equal(t, 5, burned)
}

// fill burns n nonces of an allocation, in key order and without syncs.
func fill(t testing.TB, db *bbolt.DB, allocation string, n int, expires float64) {
	t.Helper()
	db.NoSync = true
	const step = 50_000
	value := use{expires: expires, attempt: attempt("fill")}.encode()
	for from := 0; from < n; from += step {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(burnedBucket)
			b.FillPercent = 0.9
			for i := from; i < min(from+step, n); i++ {
				c := Claim{Allocation: allocation, Epoch: int64(i / 4096), Nonce: fmt.Sprintf("%032d", i)}
				if err := b.Put(burnedKey(c), value); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	db.NoSync = false
	require.NoError(t, db.Sync())
}
