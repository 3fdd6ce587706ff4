package wire

// GangInfo tells a rank how its gang stands.
type GangInfo struct {
	Workload string `json:"workload"`
	Epoch    int64  `json:"epoch"`
	Size     int    `json:"size"`
	Text     string `json:"text"` // "3 of 4 ranks; missing 2"
}

// Input is a pinned input that the rank checks before the command starts.
type Input struct {
	Path   string `json:"path"`
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// StartOrder is the release of one rank. Orders carry ids and are idempotent.
type StartOrder struct {
	ID         string              `json:"id"`
	Argv       []string            `json:"argv"`
	Setup      []string            `json:"setup,omitempty"` // shell lines before the command
	Env        map[string]string   `json:"env,omitempty"`
	Secrets    map[string]string   `json:"secrets,omitempty"`
	Workdir    string              `json:"workdir"`
	Hosts      string              `json:"hosts"` // compressed hostlist of the nodes, in node order
	PerNode    int                 `json:"per_node"`
	Size       int                 `json:"size"`
	LocalRank  int                 `json:"local_rank"`
	NodeRank   int                 `json:"node_rank"`
	MasterAddr string              `json:"master_addr"`
	MasterPort int                 `json:"master_port"`
	GraceMS    int64               `json:"grace_ms"` // between TERM and KILL
	WarnMS     int64               `json:"warn_ms"`  // how long before the deadline the command is warned
	TTY        bool                `json:"tty,omitempty"`
	Session    bool                `json:"session,omitempty"`
	Inputs     []Input             `json:"inputs,omitempty"`
	Publish    string              `json:"publish,omitempty"` // rank 0 alone
	Ports      map[string][]string `json:"ports,omitempty"`   // rank 0 alone
}

// StopOrder ends a rank. Without Done the command is stopped and its exit reported; with Done everything of the
// gang is over: the gang's code is written to RUN and the agent leaves.
type StopOrder struct {
	ID       string `json:"id"`
	Reason   string `json:"reason"`
	ExitCode int    `json:"exit_code"` // the gang's
	GraceMS  int64  `json:"grace_ms"`
	Done     bool   `json:"done,omitempty"`
	// Fail makes the agent leave with a code other than 0 although RUN holds the gang's, so that the launcher ends
	// ranks that never came or were lost.
	Fail bool `json:"fail,omitempty"`
	// Stay makes the agent wait for the scheduler's TERM, so that a cancelled job ends as cancelled in the scheduler's
	// own record and not by its script's end.
	Stay   bool   `json:"stay,omitempty"`
	Status string `json:"status,omitempty"` // succeeded | failed | cancelled, for the marker
	Error  string `json:"error,omitempty"`  // in words, for the marker
}

// SignalOrder delivers a signal to the command's process group.
type SignalOrder struct {
	ID     string `json:"id"`
	Signal int    `json:"signal"`
}

// AckOrder acknowledges a StatusReport or ExitReport.
type AckOrder struct {
	Seq uint64 `json:"seq"`
}

// WindowUpdate grants bytes to the other side's stream.
type WindowUpdate struct {
	Stream Type  `json:"stream"`
	Bytes  int64 `json:"bytes"`
}

// StatusReport tells what a rank does; it is resent until acknowledged.
type StatusReport struct {
	Seq     uint64 `json:"seq"`
	State   string `json:"state"` // started
	PID     int    `json:"pid,omitempty"`
	Message string `json:"message,omitempty"`
}

// ProgressReport is a line "@openai4s:progress {…}" of the command.
type ProgressReport struct {
	Fraction float64 `json:"fraction"`
	Phase    string  `json:"phase,omitempty"`
}

// What ended a command, if not the command itself.
const (
	CauseOrder     = "order"     // a stop order
	CauseScheduler = "scheduler" // the scheduler's TERM
	CauseWalltime  = "walltime"  // the warning before the walltime
)

// ExitReport tells a command's end; it is resent until acknowledged, also on later connections.
type ExitReport struct {
	Seq     uint64 `json:"seq"`
	Code    int    `json:"code"`
	Signal  int    `json:"signal,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Message string `json:"message,omitempty"` // why it could not start
}
