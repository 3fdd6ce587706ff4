// Package api is the control API: its documents and its client. The server is package gateway.
package api

import (
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// Protocol is the version of the control API.
const Protocol = "openai4s-control/1"

// Create is the body of POST /v1/workloads.
type Create struct {
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Request        scheduler.Request `json:"request"`
	Start          Start             `json:"start"`
	Inputs         []scheduler.Input `json:"inputs,omitempty"`
	Outputs        scheduler.Outputs `json:"outputs,omitzero"`
	Recover        int               `json:"recover,omitempty"` // new allocations after a lost one
}

// Start is what every rank gets when the gang is released. It travels on authenticated connections only.
type Start struct {
	Argv    []string          `json:"argv"`
	Setup   []string          `json:"setup,omitempty"` // the profile's prologue, then the job's own lines
	Env     map[string]string `json:"env,omitempty"`
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Created answers Create and POST …/allocations.
type Created struct {
	Workload   Workload `json:"workload"`
	Existing   bool     `json:"existing,omitempty"` // the idempotency key was known; no bundles
	JobName    string   `json:"job_name"`
	FirstEpoch int64    `json:"first_epoch"`
	Bundles    [][]byte `json:"bundles,omitempty"` // one file per epoch, from FirstEpoch
	// Upstream holds per-rank credential lines in the upstream's form, one list per epoch, where asked for.
	Upstream [][][]byte `json:"upstream,omitempty"`
}

// Workload is what everybody is shown of a workload.
type Workload struct {
	ID         scheduler.WorkloadID   `json:"id"`
	Owner      string                 `json:"owner"`
	UID        int                    `json:"uid"`
	Name       string                 `json:"name"`
	Profile    string                 `json:"profile"`
	Kind       scheduler.Kind         `json:"kind"`
	Labels     map[string]string      `json:"labels,omitempty"`
	Phase      scheduler.Phase        `json:"phase"`
	Reason     scheduler.Reason       `json:"reason,omitempty"`
	Message    string                 `json:"message,omitempty"`
	Epoch      int64                  `json:"epoch"`
	Allocation scheduler.AllocationID `json:"allocation"`
	JobName    string                 `json:"job_name"`
	Size       int                    `json:"size"`
	Nodes      int                    `json:"nodes"`
	Ranks      Ranks                  `json:"ranks"`
	Progress   *Progress              `json:"progress,omitempty"`
	Job        Job                    `json:"job"`
	Run        string                 `json:"run"`    // RUN, absolute
	Output     string                 `json:"output"` // with %j still in it while the id is unknown
	Scheduler  string                 `json:"scheduler_state,omitempty"`
	// Wants says what the owner's CLI should do for a daemon that can't: "" , "observe", "cancel", "reports", "submit".
	Wants       []string  `json:"wants,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	SubmittedAt time.Time `json:"submitted_at,omitzero"`
	StartedAt   time.Time `json:"started_at,omitzero"` // the gang was released
	EndedAt     time.Time `json:"ended_at,omitzero"`
	Deadline    time.Time `json:"deadline,omitzero"` // sessions: when the lease ends
	Result      *Result   `json:"result,omitempty"`
	History     []string  `json:"history,omitempty"` // what was lost and recovered, in words
	Version     uint64    `json:"version"`           // rises with every change
}

// Ranks counts the gang of the current epoch.
type Ranks struct {
	Live    int      `json:"live"`
	Missing []int    `json:"missing,omitempty"` // before release; at most 64 of them
	Hosts   []string `json:"hosts,omitempty"`   // of the missing ranks, where known, in the same order
	Silent  []int    `json:"silent,omitempty"`
	Exited  int      `json:"exited,omitempty"`
	Text    string   `json:"text"` // "3 of 4 ranks; missing 2 (n3)"
}

// Progress of a command, the least of its ranks'.
type Progress struct {
	Fraction float64 `json:"fraction"`
	Phase    string  `json:"phase,omitempty"`
}

// Job is the scheduler's handle.
type Job struct {
	System  string `json:"system"`
	Cluster string `json:"cluster,omitempty"`
	ID      string `json:"id,omitempty"`
}

// Result of a workload that ended; Rank and Host name the rank that decided it.
type Result struct {
	ExitCode int    `json:"exit_code"`
	Rank     int    `json:"rank"`
	Host     string `json:"host,omitempty"`
	Signal   int    `json:"signal,omitempty"`
}

// Submission is the body of PUT …/submission: what the owner's CLI learnt from the scheduler.
type Submission struct {
	Outcome    scheduler.Outcome `json:"outcome"`
	Job        scheduler.JobID   `json:"job,omitzero"`
	SubmitTime time.Time         `json:"submit_time,omitzero"`
	Reason     scheduler.Reason  `json:"reason,omitempty"`
	Text       string            `json:"text,omitempty"`
}

// ObservationReport is the body of PUT …/observation: what the owner's CLI saw, of the scheduler and of RUN.
type ObservationReport struct {
	Observation *scheduler.Observation `json:"observation,omitempty"` // nil: nothing was asked of the scheduler
	Absent      bool                   `json:"absent,omitempty"`      // the scheduler answered that it has no such job
	Exits       []ExitReport           `json:"exits,omitempty"`       // from RUN/exit-<epoch>.<rank>
	RunRead     bool                   `json:"run_read,omitempty"`    // RUN was read whole: a rank that isn't in Exits left nothing
}

// ExitReport is one rank's own report of its command's end, the content of RUN/exit-<epoch>.<rank>.
type ExitReport struct {
	Epoch  int64  `json:"epoch"`
	Rank   int    `json:"rank"`
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"`
	Cause  string `json:"cause,omitempty"` // what ended the command, if not itself: order, scheduler, walltime
	Host   string `json:"host,omitempty"`
}

// Cancelled answers POST …/cancel.
type Cancelled struct {
	Workload Workload `json:"workload"`
	// ByCaller: the caller should cancel the scheduler's job under its own uid.
	ByCaller bool `json:"by_caller"`
}

// Which says which workloads a list is of: the caller's own, all of them.
type Which struct {
	Job   string // only those with this job of the scheduler
	All   bool   // everybody's, for admins
	Limit int    // at most this many, live ones first; 0: all live ones, and a thousand that are over
}

// List answers GET /v1/workloads.
type List struct {
	Workloads []Workload `json:"workloads"` // newest first
	Total     int        `json:"total"`     // how many there are
}

// Info answers GET /v1/info.
type Info struct {
	Version    string          `json:"version"`
	Protocols  []string        `json:"protocols"`
	Widest     int             `json:"widest"`
	SiteSHA256 string          `json:"site_sha256"`
	PID        int             `json:"pid"`
	Embedded   bool            `json:"embedded"`
	Addresses  []string        `json:"addresses"` // advertised to agents
	Live       int             `json:"live"`      // live workloads
	Admitting  bool            `json:"admitting"` // false: the fence is unhealthy, Why says why
	Why        string          `json:"why,omitempty"`
	Scheduler  string          `json:"scheduler"` // what the last tick said: "ok", or the error
	ObservedAt time.Time       `json:"observed_at,omitzero"`
	Facts      scheduler.Facts `json:"facts"`
	Handshakes Handshakes      `json:"handshakes"`
}

// Handshakes are the admission counters since the daemon started.
type Handshakes struct {
	Bound         int               `json:"bound"`
	InUse         int               `json:"in_use"`
	Accepted      uint64            `json:"accepted"`
	Rejected      map[string]uint64 `json:"rejected,omitempty"` // by cause
	RefusedBusy   uint64            `json:"refused_busy"`
	RefusedSource uint64            `json:"refused_source"`
	Evicted       uint64            `json:"evicted"`
	TimedOut      uint64            `json:"timed_out"`
	Reaped        uint64            `json:"reaped"`
	Resumed       uint64            `json:"resumed"`
	DuplicateRank uint64            `json:"duplicate_rank"`
}

// Error is the body of every answer that isn't 2xx: {"error": …}. It is an error to callers of Client.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"` // not_found, not_allowed, bad_request, too_wide, conflict, unavailable, limit
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }
