package gateway

import (
	"fmt"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// This file is the workload's state machine: methods on the record that take the time as an argument and touch
// nothing else. Terminal phases are final, and an epoch only grows. Whether a change happened shows in Version.

const (
	// reportsWait is how long a job that is over waits for reports that only its owner can read.
	reportsWait = 7 * 24 * time.Hour
	// settleTime is how long reports of connected ranks may still come after the scheduler said that the job is over.
	settleTime = 15 * time.Second
	// reportedAbsence bounds the absence deadline where every rank has reported: the job can only tell why they ended.
	reportedAbsence = time.Minute
)

func (r *record) touch() { r.Version++ }

func (r *record) set(p scheduler.Phase, reason scheduler.Reason, message string) {
	if r.Phase.Terminal() || r.Phase == p && r.Reason == reason && r.Message == message {
		return
	}
	r.Phase, r.Reason, r.Message = p, reason, message
	r.touch()
}

func (r *record) end(p scheduler.Phase, reason scheduler.Reason, message string, now time.Time) {
	if r.Phase.Terminal() {
		return
	}
	r.set(p, reason, message)
	r.Ended = now
	if r.Ending != nil && !r.Ending.At.IsZero() && r.Ending.At.Before(now) && r.Ending.At.After(r.Created) {
		r.Ended = r.Ending.At
	}
	r.touch()
}

// submitted takes what the owner's CLI learnt from the scheduler.
func (r *record) submitted(s api.Submission, now time.Time) {
	if r.Phase.Terminal() {
		return
	}
	a := r.current()
	switch s.Outcome {
	case scheduler.Created, scheduler.Existing:
		a.Outcome = s.Outcome
		if a.Bound == "" || a.Bound == s.Job.ID {
			a.Job = s.Job
		}
		r.Submit = now
		r.Resubmit = false
		if r.Phase == scheduler.Submitting {
			r.set(scheduler.Pending, "", "")
		}
		r.touch()
	case scheduler.Rejected:
		if !a.Job.IsZero() || a.Bound != "" {
			return // a job was seen all the same
		}
		a.Outcome, a.Text = s.Outcome, s.Text
		if r.Cancel != "" {
			r.end(scheduler.Cancelled, r.cancelReason(), "no job was made", now)
			return
		}
		reason := s.Reason
		if reason == "" {
			reason = scheduler.BackendRejected
		}
		r.end(scheduler.Failed, reason, s.Text, now)
	default:
		if a.Job.IsZero() {
			a.Outcome, a.Text = scheduler.Unknown, s.Text
			r.set(r.Phase, scheduler.BackendSubmissionUnknown, s.Text)
			r.touch()
		}
	}
}

// bind makes job the one whose ranks are admitted to the allocation. False: another one is.
func (r *record) bind(a *allocation, job string) bool {
	if job == "" || a.Bound == job {
		return true
	}
	if a.Bound != "" {
		return false
	}
	a.Bound = job
	if a.Job.ID != job {
		a.Job.ID = job
	}
	r.touch()
	return true
}

// observed takes what the scheduler said of the current job.
func (r *record) observed(o scheduler.Observation, now time.Time) {
	if r.Phase.Terminal() {
		return
	}
	r.Absent = time.Time{}
	before := r.Seen
	r.Seen = seen{Verbatim: o.Verbatim, Message: o.Message, Hosts: o.Hosts, Restarts: o.Restarts, Suspended: o.Suspended, At: before.At}
	if len(o.Hosts) == 0 {
		r.Seen.Hosts = before.Hosts
	}
	if r.Seen.Verbatim != before.Verbatim || r.Seen.Message != before.Message || len(r.Seen.Hosts) != len(before.Hosts) || r.Seen.Suspended != before.Suspended {
		r.Seen.At = now
		r.touch()
	}
	switch {
	case o.Phase.Terminal():
		if r.Ending == nil {
			r.Ending = &ending{Phase: o.Phase, Reason: o.Reason, Text: orText(o.Message, o.Verbatim), ExitCode: o.ExitCode, Signal: o.ExitSignal, Node: o.FailedNode, At: now}
			r.touch()
		}
	case o.Phase == scheduler.Pending:
		if r.Phase == scheduler.Submitting || r.Phase == scheduler.Pending {
			r.set(scheduler.Pending, o.Reason, o.Message)
		}
		if o.Requeued || o.Restarts > before.Restarts || r.Phase == scheduler.Granted || r.Phase == scheduler.Active || r.Phase == scheduler.Releasing {
			r.requeued(now)
		}
	case o.Phase == scheduler.Granted:
		if o.Restarts > before.Restarts && !before.At.IsZero() {
			r.requeued(now)
		}
		if r.Phase == scheduler.Submitting || r.Phase == scheduler.Pending {
			r.set(scheduler.Granted, "", "")
		}
	}
}

// requeued notes that the scheduler took the job back. The next epoch's first credential starts the next gang.
func (r *record) requeued(now time.Time) {
	if r.Requeued || r.Cancel != "" || r.Request.Restarts == 0 && r.Phase == scheduler.Pending {
		return
	}
	r.Requeued = true
	r.note(fmt.Sprintf("epoch %d was taken back by the scheduler; what its ranks held in memory is lost", r.Epoch), now)
	r.set(scheduler.Pending, scheduler.StateLost, fmt.Sprintf("requeued by the scheduler; epoch %d is lost", r.Epoch))
}

func (r *record) note(text string, now time.Time) {
	r.History = append(r.History, now.UTC().Format(time.RFC3339)+" "+text)
	r.touch()
}

// forgetJob drops what was seen of a lost job before the next one is submitted.
func (r *record) forgetJob() {
	r.Ending, r.Absent, r.Seen, r.RunRead, r.Unreported, r.NeverCame = nil, time.Time{}, seen{}, false, nil, nil
	r.Release, r.Outcome, r.Over, r.Termed, r.Requeued, r.Resubmit = nil, nil, false, false, false, false
	r.touch()
}

// advance starts epoch e: the ranks of every older one are stale from here on.
func (r *record) advance(e int64, now time.Time) {
	if e <= r.Epoch || r.Phase.Terminal() {
		return
	}
	if !r.Requeued && (r.Release != nil || r.Outcome != nil) {
		r.note(fmt.Sprintf("epoch %d was replaced by epoch %d; what its ranks held in memory is lost", r.Epoch, e), now)
	}
	r.Epoch = e
	r.Release, r.Outcome, r.Over, r.Termed, r.Requeued, r.Ending, r.RunRead, r.Unreported, r.NeverCame = nil, nil, false, false, false, nil, false, nil, nil
	r.set(scheduler.Granted, "", "")
	r.touch()
}

// granted notes that a rank dialled in: the job runs, whatever the scheduler said last.
func (r *record) granted() {
	if r.Phase == scheduler.Submitting || r.Phase == scheduler.Pending {
		r.set(scheduler.Granted, "", "")
	}
}

// released notes that the start orders are about to be given out.
func (r *record) released(rel release, now time.Time) {
	r.Release = &rel
	r.Started = now
	r.set(scheduler.Active, "", "")
	r.touch()
}

// gangOver notes the gang's outcome. The job itself may live on.
func (r *record) gangOver(o gang.Outcome, over, termed bool) {
	if r.Phase.Terminal() {
		return
	}
	if r.Outcome == nil || o.Cause != gang.Undecided && r.Outcome.Cause == gang.Undecided {
		r.Outcome = &o
		r.touch()
	}
	if len(o.Missing) > len(r.Outcome.Missing) {
		r.Outcome.Missing = o.Missing
	}
	if over && !r.Over {
		r.Over = true
		r.touch()
	}
	r.Termed = r.Termed || termed
	if !r.Requeued {
		reason, message := r.words(*r.Outcome)
		r.set(scheduler.Releasing, reason, message)
	}
}

// words gives reason and message of a gang's outcome.
func (r *record) words(o gang.Outcome) (scheduler.Reason, string) {
	where := ""
	if o.Host != "" {
		where = " on " + o.Host
	}
	switch o.Cause {
	case gang.Completed:
		return "", ""
	case gang.CommandFailed:
		text := fmt.Sprintf("rank %d%s exited with %d", o.Rank, where, o.Code)
		if o.Signal != 0 {
			text = fmt.Sprintf("rank %d%s was ended by signal %d", o.Rank, where, o.Signal)
		}
		if o.Message != "" {
			text += ": " + o.Message
		}
		return scheduler.CommandFailed, text
	case gang.Walltime:
		return scheduler.TimeLimitExceeded, fmt.Sprintf("the walltime of %s was about to end; the command was stopped", r.Request.Walltime)
	case gang.RegistrationTimeout:
		how := "never came"
		if o.Gone {
			how = "had come and were gone again"
		}
		return scheduler.WorkerRegistrationTimeout, fmt.Sprintf("%d of %d ranks %s within %s of the first: %s",
			len(o.Missing), r.Request.Size(), how, r.Request.GangTimeout, gang.List(o.Missing, r.hostOf))
	case gang.RankLost:
		hostOf := func(rank int) string {
			if h := r.hostOf(rank); h != "" {
				return h
			}
			if rank == o.Rank {
				return o.Host
			}
			return ""
		}
		return scheduler.WorkerLost, "lost rank " + gang.List(o.Missing, hostOf)
	case gang.Stopped:
		switch {
		case r.Lease != "":
			return r.Lease, o.Message
		case r.Cancel == "admin":
			return scheduler.AdminCancelled, "cancelled by an administrator"
		}
		return scheduler.UserCancelled, "cancelled by its owner"
	}
	return "", "the scheduler ended the ranks"
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
