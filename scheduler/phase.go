package scheduler

// Phase of a workload.
type Phase string

// The phases. The last four are terminal and final.
const (
	Submitting Phase = "SUBMITTING" // outcome unknown
	Pending    Phase = "PENDING"    // queued
	Granted    Phase = "GRANTED"    // running, gang forming
	Active     Phase = "ACTIVE"     // released
	Releasing  Phase = "RELEASING"  // gang over, job not
	Completed  Phase = "COMPLETED"
	Failed     Phase = "FAILED"
	Cancelled  Phase = "CANCELLED"
	Lost       Phase = "LOST"
)

// Terminal tells whether the phase is final.
func (p Phase) Terminal() bool {
	switch p {
	case Completed, Failed, Cancelled, Lost:
		return true
	}
	return false
}

// Reason says why a workload is in its phase.
type Reason string

// The reasons.
const (
	InvalidSpec               Reason = "INVALID_SPEC"
	PolicyRejected            Reason = "POLICY_REJECTED"
	BackendUnavailable        Reason = "BACKEND_UNAVAILABLE"
	BackendSubmissionUnknown  Reason = "BACKEND_SUBMISSION_UNKNOWN"
	BackendRejected           Reason = "BACKEND_REJECTED"
	Unschedulable             Reason = "UNSCHEDULABLE"
	BootstrapFailed           Reason = "BOOTSTRAP_FAILED"
	WorkerRegistrationTimeout Reason = "WORKER_REGISTRATION_TIMEOUT"
	WorkerLost                Reason = "WORKER_LOST"
	NodeFailed                Reason = "NODE_FAILED"
	OutOfMemory               Reason = "OUT_OF_MEMORY"
	TimeLimitExceeded         Reason = "TIME_LIMIT_EXCEEDED"
	Preempted                 Reason = "PREEMPTED"
	UserCancelled             Reason = "USER_CANCELLED"
	AdminCancelled            Reason = "ADMIN_CANCELLED"
	SessionIdleTimeout        Reason = "SESSION_IDLE_TIMEOUT"
	SessionMaxLifetime        Reason = "SESSION_MAX_LIFETIME_EXCEEDED"
	StaleEpoch                Reason = "STALE_EPOCH"
	DuplicateSubmission       Reason = "DUPLICATE_SUBMISSION"
	StateLost                 Reason = "STATE_LOST"
	CommandFailed             Reason = "COMMAND_FAILED"
	AuthorizationDenied       Reason = "AUTHORIZATION_DENIED"
)
