package credential

import (
	"context"
	"fmt"
	"time"
)

// Attempt is the digest (SHA-256) of a hello's attempt secret; nil where the peer announced none.
type Attempt *[32]byte

// Admission is a credential that was accepted.
type Admission struct {
	Claim
	Again  bool   // the same credential with the same attempt secret, answered once more
	Resume uint64 // n of a resume credential, 0 for the first one
	Next   uint64 // n for the rank's next resume credential
}

// Scope is what the gateway knows of an allocation when one of its credentials is judged.
type Scope struct {
	Size int // ranks
}

// Judge is asked after signature, expiry, epoch floor and before the rank and the nonce. It returns the scope, or an
// error: a *Refusal refuses, anything else closes the connection unanswered and burns nothing.
type Judge func(Claim) (Scope, error)

// Gatekeeper verifies and burns.
type Gatekeeper struct {
	Secret Secret
	Fence  *Fence
	Now    func() time.Time
}

// Admit is the one step of verification and burn. Errors: *Refusal, or anything else for "no verdict". Beside an error
// from behind the signature check, the Admission's Claim is what the credential says, for the audit record; beside an
// earlier one it is empty.
func (g *Gatekeeper) Admit(ctx context.Context, line []byte, a Attempt, judge Judge) (Admission, error) {
	if g.Secret.key == nil {
		return Admission{}, fmt.Errorf("admitting: %w", ErrNoSecret)
	}
	if err := g.Fence.Healthy(); err != nil {
		return Admission{}, fmt.Errorf("admitting: %w", err)
	}
	c, signature, err := parse(line)
	if err != nil {
		return Admission{}, &Refusal{Cause: CauseMalformed}
	}
	if !g.Secret.verify(c, signature) {
		return Admission{}, &Refusal{Cause: CauseSignature}
	}
	resume, _ := resumeNumber(c.Nonce) // parse took no nonce with a wrong number
	said := Admission{Claim: c, Resume: resume}

	if c.Expires <= unixSeconds(g.Now()) || g.Fence.forgot(c.Expires) {
		return said, &Refusal{Cause: CauseExpired}
	}
	if c.Epoch < g.Fence.Floor(c.Allocation) {
		return said, &Refusal{Cause: CauseStaleEpoch}
	}
	scope, err := judge(c)
	if err != nil {
		return said, err
	}
	if c.Rank >= scope.Size {
		return said, &Refusal{Cause: CauseRankRange}
	}
	burned, err := g.Fence.burn(ctx, c, resume, a)
	if err != nil {
		return said, err
	}
	// From here on the peer is who the credential says.
	said.Again, said.Next = burned.again, burned.next
	return said, nil
}

// Issue has the fence remember how long the claims can be presented and then signs them, in order. All belong to one
// allocation. The lines have no newline.
func (g *Gatekeeper) Issue(ctx context.Context, allocation string, claims ...Claim) ([][]byte, error) {
	if g.Secret.key == nil {
		return nil, fmt.Errorf("issuing for %s: %w", allocation, ErrNoSecret)
	}
	var latest float64
	for _, c := range claims {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("issuing for %s: %w", allocation, err)
		}
		if c.Allocation != allocation {
			return nil, fmt.Errorf("issuing for %s: %w: it names allocation %q", allocation, ErrClaim, c.Allocation)
		}
		latest = max(latest, c.Expires)
	}
	if err := g.Fence.Remember(ctx, allocation, latest); err != nil {
		return nil, fmt.Errorf("issuing for %s: %w", allocation, err)
	}
	lines := make([][]byte, len(claims))
	for i, c := range claims {
		lines[i] = g.Secret.Issue(c)
	}
	return lines, nil
}

// unixSeconds is the clock in the unit of a credential's expiry.
func unixSeconds(t time.Time) float64 {
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}
