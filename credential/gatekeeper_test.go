package credential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/credential/bundle"
)

func TestAdmit(t *testing.T) {
	errUndecided := errors.New("epoch undecided")
	secret := testSecret("a")
	issue := func(change func(*Claim)) []byte {
		c := claim()
		change(&c)
		return secret.Issue(c)
	}
	same := func(*Claim) {}
	tests := []struct {
		name   string
		line   []byte
		judge  Judge
		cause  string
		other  error // an error that is no verdict
		burned bool  // the same line is refused as replayed afterwards
		silent bool  // the admission beside the refusal names nobody
	}{
		{name: "good", line: issue(same), burned: true},
		{name: "last rank", line: issue(func(c *Claim) { c.Rank = 3 }), burned: true},
		{name: "above the floor", line: issue(func(c *Claim) { c.Epoch = 9 }), burned: true},
		{name: "expires a moment later", line: issue(func(c *Claim) { c.Expires = fixedNow + 0.001 }), burned: true},
		{name: "not JSON", line: []byte("hello"), cause: CauseMalformed, silent: true},
		{name: "empty", line: nil, cause: CauseMalformed, silent: true},
		{name: "forged with another secret", line: testSecret("b").Issue(claim()), cause: CauseSignature, silent: true},
		{name: "forged rank", line: bytes.Replace(issue(same), []byte(`"rank": 1`), []byte(`"rank": 2`), 1), cause: CauseSignature, silent: true},
		{name: "forged epoch", line: bytes.Replace(issue(same), []byte(`"epoch": 3`), []byte(`"epoch": 4`), 1), cause: CauseSignature, silent: true},
		{name: "forged expiry", line: bytes.Replace(issue(same), []byte("1764536400.0"), []byte("1764536401.0"), 1), cause: CauseSignature, silent: true},
		{name: "upper-case signature", line: upperSignature(issue(same)), cause: CauseSignature, silent: true},
		{name: "expired", line: issue(func(c *Claim) { c.Expires = fixedNow - 1 }), cause: CauseExpired},
		{name: "expires now", line: issue(func(c *Claim) { c.Expires = fixedNow }), cause: CauseExpired},
		{name: "old epoch", line: issue(func(c *Claim) { c.Epoch = 2 }), cause: CauseStaleEpoch},
		{name: "rank out of range", line: issue(func(c *Claim) { c.Rank = 4 }), cause: CauseRankRange},
		{name: "judge refuses", line: issue(same), cause: CauseUnknownAllocation,
			judge: func(Claim) (Scope, error) { return Scope{}, &Refusal{CauseUnknownAllocation} }},
		{name: "judge can't say", line: issue(same), other: errUndecided,
			judge: func(Claim) (Scope, error) { return Scope{Size: 4}, fmt.Errorf("judging: %w", errUndecided) }},
		{name: "judge forgets the size", line: issue(same), cause: CauseRankRange,
			judge: func(Claim) (Scope, error) { return Scope{}, nil }},
		{name: "resume of nobody", line: issue(func(c *Claim) { c.Nonce = ResumeNonce(1) }), cause: CauseResume},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGatekeeper(t)
			require.NoError(t, g.Fence.Raise(t.Context(), "alloc_01", 3))
			judge := tt.judge
			if judge == nil {
				judge = ranks(4)
			}
			got, err := g.Admit(t.Context(), tt.line, attempt("a"), judge)
			require.Equal(t, tt.cause, cause(err), "%v", err)
			require.Equal(t, tt.silent, got.Allocation == "")
			switch {
			case tt.other != nil:
				require.ErrorIs(t, err, tt.other)
			case tt.cause == "":
				require.NoError(t, err)
				require.False(t, got.Again)
				require.Zero(t, got.Resume)
				require.EqualValues(t, 1, got.Next)
			}
			if tt.silent {
				return
			}
			// Refused or undecided, nothing was burned: without the obstacle the line still passes once.
			_, err = g.Admit(t.Context(), tt.line, nil, ranks(4))
			if tt.burned {
				require.Equal(t, CauseReplayed, cause(err))
			} else if tt.judge != nil {
				require.NoError(t, err)
			}
		})
	}
}

func upperSignature(line []byte) []byte {
	at := bytes.Index(line, []byte(`"signature": "`)) + len(`"signature": "`)
	return append(bytes.Clone(line[:at]), bytes.ToUpper(line[at:])...)
}

// The order of the checks shows in the cause of a credential that fails several.
func TestAdmitOrder(t *testing.T) {
	g := newGatekeeper(t)
	require.NoError(t, g.Fence.Raise(t.Context(), "alloc_01", 3))
	judged := 0
	judge := func(Claim) (Scope, error) { judged++; return Scope{Size: 1}, nil }

	c := Claim{Allocation: "alloc_01", Epoch: 2, Rank: 5, Expires: fixedNow - 1, Nonce: ResumeNonce(4)}
	_, err := g.Admit(t.Context(), testSecret("b").Issue(c), nil, judge)
	require.Equal(t, CauseSignature, cause(err))
	_, err = g.Admit(t.Context(), g.Secret.Issue(c), nil, judge)
	require.Equal(t, CauseExpired, cause(err))
	c.Expires = fixedExpiry
	_, err = g.Admit(t.Context(), g.Secret.Issue(c), nil, judge)
	require.Equal(t, CauseStaleEpoch, cause(err))
	require.Zero(t, judged)
	c.Epoch = 3
	_, err = g.Admit(t.Context(), g.Secret.Issue(c), nil, judge)
	require.Equal(t, CauseRankRange, cause(err))
	require.Equal(t, 1, judged)
	c.Rank = 0
	_, err = g.Admit(t.Context(), g.Secret.Issue(c), nil, judge)
	require.Equal(t, CauseResume, cause(err))

	// Before all of them stands the fence's health.
	g.Fence, err = OpenFence(newStore(t)) // without a Run, which would mend it
	require.NoError(t, err)
	require.ErrorIs(t, g.Fence.fail(errors.New("disk gone")), ErrFenceUnhealthy)
	_, err = g.Admit(t.Context(), []byte("hello"), nil, judge)
	require.ErrorIs(t, err, ErrFence)
	require.ErrorContains(t, err, "disk gone")
}

// A requeued job's old ranks, and those of a finished allocation, are refused by epoch.
func TestCase32RequeueRefusesOldRanks(t *testing.T) {
	g := newGatekeeper(t)
	old := claim()
	require.NoError(t, g.Fence.Raise(t.Context(), old.Allocation, old.Epoch+1))
	_, err := g.Admit(t.Context(), g.Secret.Issue(old), attempt("a"), ranks(4))
	require.Equal(t, CauseStaleEpoch, cause(err))
	next := claim()
	next.Epoch++
	_, err = g.Admit(t.Context(), g.Secret.Issue(next), attempt("a"), ranks(4))
	require.NoError(t, err)
}

func TestCase33FinishedAllocationRefusesEveryEpoch(t *testing.T) {
	g := newGatekeeper(t)
	require.NoError(t, g.Fence.Raise(t.Context(), "alloc_01", math.MaxInt64))
	for _, epoch := range []int64{0, 3, 1 << 40, math.MaxInt64 - 1} {
		c := claim()
		c.Epoch = epoch
		_, err := g.Admit(t.Context(), g.Secret.Issue(c), attempt("a"), ranks(4))
		require.Equal(t, CauseStaleEpoch, cause(err), "epoch %d", epoch)
	}
}

func TestIssueRefuses(t *testing.T) {
	g := newGatekeeper(t)
	for name, change := range map[string]func(*Claim){
		"another allocation": func(c *Claim) { c.Allocation = "alloc_02" },
		"no nonce":           func(c *Claim) { c.Nonce = "" },
		"never expires":      func(c *Claim) { c.Expires = math.Inf(1) },
		"negative epoch":     func(c *Claim) { c.Epoch = -1 },
		"negative rank":      func(c *Claim) { c.Rank = -1 },
		"broken resume":      func(c *Claim) { c.Nonce = "resume.x" },
		"not UTF-8":          func(c *Claim) { c.Nonce = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			c := claim()
			change(&c)
			_, err := g.Issue(t.Context(), "alloc_01", claim(), c)
			require.ErrorIs(t, err, ErrClaim)
			require.NotContains(t, err.Error(), claim().Nonce)
		})
	}
}

func TestIssueGangFillsABundle(t *testing.T) {
	g := newGatekeeper(t)
	o := Gang{
		Workload: "wl_1", Allocation: "alloc_01", Epoch: 3, Size: 3, RanksPerNode: 1, Expires: time.Unix(fixedExpiry, 0),
		Addresses: []string{"head:8761"}, TLS: true, Pins: []string{"sha256:" + strings.Repeat("ab", 32)}, DialTimeout: 10 * time.Minute,
	}
	file, lines, err := g.IssueGang(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, lines, 3)
	path := filepath.Join(t.TempDir(), "gang-3.bundle")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	for rank := range 3 {
		h, line, err := bundle.Read(path, rank)
		require.NoError(t, err)
		require.Equal(t, "on", h.TLS)
		require.Equal(t, lines[rank], line)
		got, err := g.Admit(t.Context(), line, attempt("a"), ranks(h.Size))
		require.NoError(t, err)
		require.Equal(t, rank, got.Rank)
		require.Equal(t, fixedExpiry, got.Expires)
	}
	for _, size := range []int{-1, 0, bundle.MaxRanks + 1} {
		o.Size = size
		_, _, err := g.IssueGang(t.Context(), o)
		require.ErrorIs(t, err, ErrClaim)
	}
}

func TestAdmitGivesUpWaiting(t *testing.T) {
	f, err := OpenFence(newStore(t)) // whose burner doesn't run yet
	require.NoError(t, err)
	g := &Gatekeeper{Secret: testSecret("a"), Fence: f, Now: at(fixedNow)}
	line := g.Secret.Issue(claim())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // time enough to ask for the burn
	defer cancel()
	_, err = g.Admit(ctx, line, attempt("a"), ranks(4))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, cause(err))

	// The burn is still made: another attempt can't have it, the same can.
	run(t, f)
	_, err = g.Admit(t.Context(), line, attempt("b"), ranks(4))
	require.Equal(t, CauseAttempt, cause(err))
	got, err := g.Admit(t.Context(), line, attempt("a"), ranks(4))
	require.NoError(t, err)
	require.True(t, got.Again)
}
