// Package scheduler is the domain: what a user asked for, what a site accepted, what a batch scheduler was
// handed and what it said about it afterwards. It holds the System interface that every scheduler implements
// and imports nothing else of this module.
package scheduler

import (
	"context"
	"time"
)

// WorkloadID names what a user asked for, across all attempts: "wl_" and 12 hex digits.
type WorkloadID string

// AllocationID names one scheduler job of a workload, its requeues included: "alloc_" and 12 hex digits.
type AllocationID string

// Hex returns the twelve hex digits behind the prefix.
func (a AllocationID) Hex() string {
	const prefix = "alloc_"
	if len(a) > len(prefix) {
		return string(a[len(prefix):])
	}
	return string(a)
}

// JobID is a scheduler's job. Both fields are opaque text; equality is by both.
type JobID struct {
	Cluster string `json:"cluster,omitempty"` // empty: the scheduler's default cluster
	ID      string `json:"id"`
}

// IsZero tells whether no job is named.
func (j JobID) IsZero() bool { return j.ID == "" }

// String is the form shown to people and taken from them: "1234", or "1234@cluster".
func (j JobID) String() string {
	if j.Cluster == "" {
		return j.ID
	}
	return j.ID + "@" + j.Cluster
}

// Launch is what is known once the gateway has made the workload: ids and paths, never a secret.
type Launch struct {
	Workload   WorkloadID
	Allocation AllocationID
	JobName    string   // the scheduler's name of the job, the token it is found by
	Dir        string   // RUN, absolute
	Agent      string   // absolute path of the agent on the compute nodes
	Launcher   []string // local only: the program that starts one agent per rank (what srun is for Slurm)
	FirstEpoch int64    // the allocation's range of epochs is FirstEpoch .. FirstEpoch+Restarts
}

// Submission is a rendered Request: what a System hands over.
type Submission struct {
	Name   string   // the job name
	Args   []string // arguments of the submit command, an argv list, no shell
	Script []byte   // the batch script, given on standard input
	Dir    string   // RUN, where a System may keep its own notes
}

// Outcome is what is known of a submission.
type Outcome string

// The four outcomes. Unknown is never treated as Rejected: the job may exist.
const (
	Unknown  Outcome = "unknown"
	Created  Outcome = "created"
	Existing Outcome = "existing" // found by its name, not made by this call
	Rejected Outcome = "rejected"
)

// Receipt is the answer to a submission.
type Receipt struct {
	Outcome Outcome `json:"outcome"`
	Job     JobID   `json:"job,omitzero"`
	Reason  Reason  `json:"reason,omitempty"` // for Rejected and Unknown
	Text    string  `json:"text,omitempty"`   // what the scheduler said, capped and neutralised
	Hint    string  `json:"hint,omitempty"`   // the remedy, where we know one
	Later   bool    `json:"later,omitempty"`  // Rejected for a limit that passes by itself: try later, the job is good
}

// Observation is what a scheduler says of one job at one moment.
type Observation struct {
	Phase      Phase     `json:"phase"`                // PENDING, GRANTED, RELEASING (completing) or a terminal one; "" for a state we don't know
	Reason     Reason    `json:"reason,omitempty"`     // for terminal phases and UNSCHEDULABLE
	Verbatim   string    `json:"verbatim,omitempty"`   // the scheduler's own words, "PENDING/Resources"
	Message    string    `json:"message,omitempty"`    // words for people: held, can never run, launch failed
	Name       string    `json:"name,omitempty"`       // job name as the scheduler has it
	User       string    `json:"user,omitempty"`       // user name, where the scheduler tells it
	Restarts   int       `json:"restarts,omitempty"`   // requeues so far, as the scheduler counts
	Suspended  bool      `json:"suspended,omitempty"`  // no heartbeat is expected
	Held       bool      `json:"held,omitempty"`       // waits for a person
	Requeued   bool      `json:"requeued,omitempty"`   // it ran before and waits to run again
	SubmitTime time.Time `json:"submit_time,omitzero"` // informative only: a requeue changes it
	StartTime  time.Time `json:"start_time,omitzero"`
	EndTime    time.Time `json:"end_time,omitzero"`
	ExitCode   *int      `json:"exit_code,omitempty"`   // of the batch script
	ExitSignal int       `json:"exit_signal,omitempty"` // that ended the batch script, 0 for none
	Hosts      []string  `json:"hosts,omitempty"`       // the node list, expanded, in the order ranks are laid out by blocks
	FailedNode string    `json:"failed_node,omitempty"`
}

// Answer is what a System knows. A job that is no key of it is absent: neither queue nor accounting has it.
// Where a System could not find out, it returns an error (ErrNoAnswer) or puts the job into Unanswered.
type Answer struct {
	Known      map[JobID]Observation
	Unanswered map[JobID]error // asked for, and no answer: never to be taken for absent
}

// Identity says whose and which job is meant. Cancel compares both before it acts.
type Identity struct {
	UID  int    // owner
	User string // owner's name
	Name string // the job name
}

// System is one batch scheduler. One suite (schedulertest) tests every implementation.
type System interface {
	// Submit hands the job over. It returns an error only for what went wrong before the scheduler was asked
	// (no such command, nothing written); after that everything is in the Receipt, a lost answer included.
	Submit(ctx context.Context, s Submission) (Receipt, error)
	// Find looks a job up by name and owner, in queue and accounting, finished jobs included. An error means
	// that it can't be told; nil and an empty slice mean that there is none.
	Find(ctx context.Context, who Identity) ([]JobID, error)
	// Observe asks for all ids in as few commands as the scheduler allows.
	Observe(ctx context.Context, ids []JobID) (Answer, error)
	// Cancel ends the job if it is the one meant: ErrNotOurs if not, ErrNoSuchJob if it is gone, ErrNoAnswer if
	// the scheduler did not say. It returns once the scheduler took the order, not when the job is over.
	Cancel(ctx context.Context, id JobID, who Identity) error
	// Facts tells what of the scheduler's configuration bears on every job. It is cheap and asked rarely.
	Facts(ctx context.Context) (Facts, error)
}

// Facts of a scheduler that bear on every job.
type Facts struct {
	Version    string        `json:"version,omitempty"`
	Cluster    string        `json:"cluster,omitempty"`
	KillDelay  time.Duration `json:"kill_delay,omitempty"`  // between TERM and KILL; 0 where it can't be told
	MinJobAge  time.Duration `json:"min_job_age,omitempty"` // how long a finished job stays in the queue's answers
	Accounting bool          `json:"accounting"`            // finished jobs can be looked up
	SeesOthers bool          `json:"sees_others"`           // this uid is shown other users' jobs
}

// Inspector tells what the live cluster offers (site init, site check).
type Inspector interface {
	Inspect(ctx context.Context) (Cluster, error)
}

// Cluster is what a live cluster offers.
type Cluster struct {
	Facts      Facts
	Partitions []PartitionFacts // queues, on PBS
	QoS        []string
	Accounts   []string // the caller may charge
	Warnings   []string
}

// PartitionFacts of one partition or queue.
type PartitionFacts struct {
	Name          string
	Default       bool
	Up            bool
	Nodes         int           // that exist
	MaxNodes      int           // a job may have; 0: no limit but Nodes
	MaxTime       time.Duration // 0: unlimited
	DefaultTime   time.Duration
	CPUsPerNode   int   // of the largest node
	MemoryPerNode int64 // bytes, of the largest node
	GPUsPerNode   int
	GPUTypes      []string
	AllowQoS      []string
	AllowAccounts []string
}
