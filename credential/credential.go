// Package credential is the secret, the single-use credentials made with it, and the fence that remembers
// which were used.
package credential

import (
	"context"
	"time"

	"go.etcd.io/bbolt"
)

// Secret is the daemon's 32-byte HMAC key. It prints as "[redacted]".
type Secret struct{ b [32]byte }

// LoadSecret reads dir/worker-bootstrap-secret, or creates it (0600, hard link, so that two daemons settle on one).
func LoadSecret(dir string) (Secret, error) { return Secret{}, nil }

// Claim is what a credential says.
type Claim struct {
	Allocation string
	Epoch      int64
	Rank       int
	Expires    float64 // Unix seconds
	Nonce      string
}

// Issue signs a claim and returns the credential's line as the upstream issuer writes it, without a newline.
func (s Secret) Issue(c Claim) []byte { return nil }

// NewNonce returns 24 random bytes as 32 URL-safe base64 characters.
func NewNonce() string { return "" }

// ResumeNonce returns "resume.<n>.<random>".
func ResumeNonce(n uint64) string { return "" }

// Attempt is the digest (SHA-256) of a hello's attempt secret; nil where the peer announced none.
type Attempt *[32]byte

// Admission is a credential that was accepted.
type Admission struct {
	Claim
	Again  bool   // the same credential with the same attempt secret, answered once more
	Resume uint64 // n of a resume credential, 0 for the first one
}

// Scope is what the gateway knows of an allocation when one of its credentials is judged.
type Scope struct {
	Size int // ranks
}

// Judge is asked after signature, expiry, epoch floor and before the rank and the nonce. It returns the scope, or an
// error: a *Refusal refuses, anything else closes the connection unanswered and burns nothing.
type Judge func(Claim) (Scope, error)

// Refusal is a verdict on the credential. Its cause goes to the audit log, never to the peer.
type Refusal struct{ Cause string }

func (r *Refusal) Error() string { return "refused: " + r.Cause }

// Gatekeeper verifies and burns.
type Gatekeeper struct {
	Secret Secret
	Fence  *Fence
	Now    func() time.Time
}

// Admit is the one step of verification and burn. Errors: *Refusal, or anything else for "no verdict".
func (g *Gatekeeper) Admit(ctx context.Context, line []byte, a Attempt, judge Judge) (Admission, error) {
	return Admission{}, nil
}

// Fence is the durable memory of burned nonces and raised epochs, in buckets of the daemon's store file.
type Fence struct{ db *bbolt.DB }

// OpenFence loads the floors and checks that the buckets can be read. Run must run for burns to be answered.
func OpenFence(db *bbolt.DB) (*Fence, error) { return &Fence{db: db}, nil }

// Run is the burner: one goroutine, all waiting burns share one transaction and sync.
func (f *Fence) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Healthy returns nil, or why nothing can be admitted.
func (f *Fence) Healthy() error { return nil }

// Raise bars every epoch below floor of the allocation, durably. It never lowers.
func (f *Fence) Raise(ctx context.Context, allocation string, floor int64) error { return nil }

// Floor is the lowest epoch still admitted of an allocation.
func (f *Fence) Floor(allocation string) int64 { return 0 }

// Used marks that a byte came after the answer: the same credential is not admitted again.
func (f *Fence) Used(c Claim) {}

// Prune forgets what can't be presented any more.
func (f *Fence) Prune(ctx context.Context, now time.Time) (int, error) { return 0, nil }
