package gateway

import (
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// record is what the store keeps of a workload. It holds no secret: those are sealed elsewhere.
type record struct {
	ID         scheduler.WorkloadID `json:"id"`
	UID        int                  `json:"uid"`
	Owner      string               `json:"owner"`
	Key        string               `json:"idempotency_key,omitempty"`
	Labels     map[string]string    `json:"labels,omitempty"`
	Request    scheduler.Request    `json:"request"`
	Inputs     []scheduler.Input    `json:"inputs,omitempty"`
	Outputs    scheduler.Outputs    `json:"outputs,omitzero"`
	Phase      scheduler.Phase      `json:"phase"`
	Reason     scheduler.Reason     `json:"reason,omitempty"`
	Message    string               `json:"message,omitempty"`
	Epoch      int64                `json:"epoch"`
	Attempts   []allocation         `json:"allocations"` // the last one is current
	Release    *release             `json:"release,omitempty"`
	Outcome    *gang.Outcome        `json:"outcome,omitempty"` // of the current epoch's gang, once decided
	Over       bool                 `json:"over,omitempty"`    // every rank of the current epoch is accounted for
	Termed     bool                 `json:"termed,omitempty"`  // the scheduler ended a rank
	Cancel     string               `json:"cancel,omitempty"`  // who asked: user | admin
	Lease      scheduler.Reason     `json:"lease,omitempty"`   // which lease ran out
	Recover    int                  `json:"recover,omitempty"` // recoveries left
	Resubmit   bool                 `json:"resubmit,omitempty"`
	Ending     *ending              `json:"ending,omitempty"`     // the job is over, in the scheduler's words
	RunRead    bool                 `json:"run_read,omitempty"`   // the owner reported what RUN holds after the job's end
	Unreported []int                `json:"unreported,omitempty"` // ranks without a report of their end, once the job is over
	NeverCame  []int                `json:"never_came,omitempty"` // ranks that had not registered when the job ended before the gang was there
	Absent     time.Time            `json:"absent,omitzero"`      // since when the scheduler knows no such job
	Requeued   bool                 `json:"requeued,omitempty"`
	Seen       seen                 `json:"seen,omitzero"`
	Result     *api.Result          `json:"result,omitempty"`
	History    []string             `json:"history,omitempty"`
	Created    time.Time            `json:"created"`
	Submit     time.Time            `json:"submitted,omitzero"`
	Started    time.Time            `json:"started,omitzero"`
	Ended      time.Time            `json:"ended,omitzero"`
	Version    uint64               `json:"version"`
}

// allocation is one scheduler job of a workload.
type allocation struct {
	ID         scheduler.AllocationID `json:"id"`
	FirstEpoch int64                  `json:"first_epoch"`
	Epochs     int64                  `json:"epochs"` // restarts + 1
	JobName    string                 `json:"job_name"`
	Outcome    scheduler.Outcome      `json:"outcome,omitempty"`
	Job        scheduler.JobID        `json:"job,omitzero"`
	Bound      string                 `json:"bound,omitempty"` // the job whose ranks were admitted; no other job's are
	Expires    time.Time              `json:"expires"`
	Text       string                 `json:"text,omitempty"`
}

func (a allocation) holds(epoch int64) bool {
	return epoch >= a.FirstEpoch && epoch < a.FirstEpoch+a.Epochs
}

// release is what a restarted gateway needs to know of a gang that was released.
type release struct {
	Members    []gang.Member `json:"members"`
	MasterAddr string        `json:"master_addr"`
	MasterPort int           `json:"master_port"`
}

// seen is the last observation, as far as it is shown.
type seen struct {
	Verbatim  string    `json:"verbatim,omitempty"`
	Message   string    `json:"message,omitempty"`
	Hosts     []string  `json:"hosts,omitempty"`
	Restarts  int       `json:"restarts,omitempty"`
	Suspended bool      `json:"suspended,omitempty"`
	At        time.Time `json:"at,omitzero"`
}

// ending is a job's end in the scheduler's words.
type ending struct {
	Phase    scheduler.Phase  `json:"phase"`
	Reason   scheduler.Reason `json:"reason,omitempty"`
	Text     string           `json:"text,omitempty"`
	ExitCode *int             `json:"exit_code,omitempty"`
	Signal   int              `json:"signal,omitempty"`
	Node     string           `json:"node,omitempty"`
	At       time.Time        `json:"at"`
}

func (r *record) current() *allocation { return &r.Attempts[len(r.Attempts)-1] }

func (r *record) allocation(id scheduler.AllocationID) *allocation {
	for i := range r.Attempts {
		if r.Attempts[i].ID == id {
			return &r.Attempts[i]
		}
	}
	return nil
}

// identity is what the scheduler must say of the job before it is cancelled.
func (r *record) identity() scheduler.Identity {
	return scheduler.Identity{UID: r.UID, User: r.Owner, Name: r.current().JobName}
}

// run is RUN.
func (r *record) run() string { return r.Request.RuntimeDir + "/" + string(r.ID) }

// hostOf names the node that a rank should run on, from the scheduler's node list.
func (r *record) hostOf(rank int) string {
	per := r.Request.RanksPerNode
	if per < 1 || rank < 0 || rank/per >= len(r.Seen.Hosts) {
		return ""
	}
	return r.Seen.Hosts[rank/per]
}
