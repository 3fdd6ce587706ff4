package credential

import (
	"errors"
	"fmt"
)

// ErrFence is at the root of every error that means "no verdict": nothing was judged, nothing was admitted, the peer
// may try again.
var ErrFence = errors.New("the fence can't answer")

var (
	// ErrFenceUnhealthy is returned while a failed write has not been followed by one that succeeded.
	ErrFenceUnhealthy = fmt.Errorf("%w: its last write failed", ErrFence)

	// ErrFenceCorrupt is returned when what the store holds can't be read. It stays until the store is opened anew.
	ErrFenceCorrupt = fmt.Errorf("%w: its records can't be read", ErrFence)

	// ErrFenceStopped is returned to burns that wait when Run ends, and to those that come after it.
	ErrFenceStopped = fmt.Errorf("%w: it has stopped", ErrFence)

	// ErrFenceRunning is returned by a second Run beside the first.
	ErrFenceRunning = errors.New("the fence's burner runs already")

	// ErrNoSecret is returned when a credential is to be verified or issued with the zero Secret.
	ErrNoSecret = errors.New("no secret is loaded")

	// ErrSecret is returned for a secret file that must not be used.
	ErrSecret = errors.New("unusable secret file")

	// ErrClaim is returned when a claim can't be issued because no verifier would take it.
	ErrClaim = errors.New("claim can't be issued")
)

// Causes of a Refusal. They are for the audit log and the counters; a peer never sees one.
const (
	CauseMalformed         = "malformed"          // not the strict form of a credential
	CauseSignature         = "signature"          // not signed with our secret
	CauseExpired           = "expired"            // expires_at has come
	CauseStaleEpoch        = "stale-epoch"        // below the allocation's floor
	CauseRankRange         = "rank-range"         // rank not in [0, size)
	CauseReplayed          = "replayed"           // burned, and not this attempt's to present again
	CauseAttempt           = "attempt"            // burned or resumed by another attempt secret, or without one
	CauseUsed              = "used"               // the same attempt again, but a byte had come after the answer
	CauseResume            = "resume"             // a resume of a rank that was never admitted, or an overtaken number
	CauseUnknownAllocation = "unknown-allocation" // for a Judge: no such allocation
	CauseOtherJob          = "other-job"          // for a Judge: the epoch is bound to another scheduler job
	CauseDuplicateRank     = "duplicate-rank"     // for a Judge: the rank is registered already
)

// Refusal is a verdict on the credential. Its cause goes to the audit log, never to the peer.
type Refusal struct{ Cause string }

func (r *Refusal) Error() string { return "refused: " + r.Cause }
