package gateway

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// What the owner's CLI is asked to do for a daemon that can't.
const (
	wantObserve = "observe" // ask the scheduler and report
	wantCancel  = "cancel"  // cancel the job
	wantReports = "reports" // read RUN and report
	wantSubmit  = "submit"  // ask for a new allocation and submit it
)

// view is what is shown of a record; the counts of a live gang are added by live.
func (r *record) view() api.Workload {
	a := r.current()
	w := api.Workload{
		ID: r.ID, Owner: r.Owner, UID: r.UID, Name: r.Request.Name, Profile: r.Request.Profile, Kind: r.Request.Kind,
		Labels: r.Labels, Phase: r.Phase, Reason: r.Reason, Message: r.Message, Epoch: r.Epoch,
		Allocation: a.ID, JobName: a.JobName, Size: r.Request.Size(), Nodes: r.Request.Nodes,
		Job: api.Job{System: r.Request.System, Cluster: a.Job.Cluster, ID: a.Job.ID},
		Run: r.run(), Output: r.output(), Scheduler: orText(r.Seen.Message, r.Seen.Verbatim),
		CreatedAt: r.Created, SubmittedAt: r.Submit, StartedAt: r.Started, EndedAt: r.Ended,
		Result: r.Result, History: r.History, Version: r.Version,
	}
	if w.Message == "" && !r.Phase.Terminal() {
		w.Message = r.Seen.Message
	}
	return w
}

// output is the output file's path; %j stays in it while the job's id is unknown, %r always.
func (r *record) output() string {
	out := r.Request.Output
	if out == "" {
		return ""
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(r.Request.Workdir, out)
	}
	var b strings.Builder
	for i := 0; i < len(out); i++ {
		if out[i] != '%' || i+1 == len(out) {
			b.WriteByte(out[i])
			continue
		}
		i++
		switch id := r.current().Job.ID; {
		case out[i] == '%':
			b.WriteByte('%')
		case out[i] == 'w':
			b.WriteString(string(r.ID))
		case out[i] == 'j' && id != "":
			b.WriteString(id)
		default:
			b.WriteByte('%')
			b.WriteByte(out[i])
		}
	}
	return b.String()
}

// wants lists what the owner's CLI should do.
func (l *live) wants(now time.Time) []string {
	r := l.rec
	if r.Phase.Terminal() {
		return nil
	}
	if r.Resubmit {
		return []string{wantSubmit}
	}
	var wants []string
	known := !r.current().Job.IsZero()
	if known && r.Ending == nil && !l.srv.sees(r.UID) {
		wants = append(wants, wantObserve)
	}
	if known && r.Ending == nil && l.wantsJobGone(now) && !l.srv.mayCancel(r.UID) {
		wants = append(wants, wantCancel)
	}
	if r.Ending != nil && !r.Over && !r.RunRead && r.Release != nil {
		wants = append(wants, wantReports)
	}
	return wants
}

// lingering is how long a job may live on after its gang is over before it is cancelled.
const lingering = 20 * time.Second

// wantsJobGone: the workload is cancelled or its gang is over, and the job should end.
func (l *live) wantsJobGone(now time.Time) bool {
	r := l.rec
	if r.Cancel != "" || r.Lease != "" {
		// The ranks are stopped and drained first; a job without ranks is cancelled at once.
		// The last one stays until the scheduler ends it; one that publishes is given the time.
		over := l.gang.State() == gang.Done && !l.lastDone.IsZero()
		return len(l.peers) == 0 || over && (l.dismissed && r.Outputs.Publish == "" || now.After(l.lastDone))
	}
	failed := r.Outcome != nil && r.Outcome.Cause != gang.Completed && r.Outcome.Cause != gang.Undecided
	return failed && r.Over && len(l.peers) == 0 && now.After(l.overSince.Add(lingering))
}

// jobOf tells whether id is the scheduler's id of one of the workload's jobs. What stands behind a dot, a server's
// name, people leave away.
func (r *record) jobOf(id string) bool {
	for _, a := range r.Attempts {
		short, _, _ := strings.Cut(a.Job.ID, ".")
		if !a.Job.IsZero() && (a.Job.ID == id || a.Job.String() == id || short == id) {
			return true
		}
	}
	return false
}

// phaseOpen: the current allocation may still be asked for.
func (r *record) phaseOpen() bool {
	return !r.Phase.Terminal() && (r.Resubmit || r.Phase == scheduler.Submitting && r.current().Job.IsZero())
}
