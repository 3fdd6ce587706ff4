package gateway

import (
	"fmt"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// conclude decides the terminal phase where that can be decided now. connected tells whether ranks are still there
// to report. It is called after every change and on ticks.
func (r *record) conclude(connected bool, absenceDeadline time.Duration, now time.Time) {
	if r.Phase.Terminal() || r.Resubmit { // what ended the lost allocation decides nothing of the next
		return
	}
	if r.Ending == nil {
		r.concludeAbsent(connected, absenceDeadline, now)
		return
	}
	// Reports may still be on their way.
	if connected && !r.Over && now.Before(r.Ending.At.Add(settleTime)) {
		return
	}
	e := r.Ending
	switch {
	case r.Outcome != nil && r.Outcome.Cause != gang.Undecided:
		r.concludeOutcome(now)
	case r.Cancel != "":
		r.finish(scheduler.Cancelled, r.cancelReason(), "", now)
	case r.decidesAlone(e.Reason) || e.Phase == scheduler.Cancelled:
		r.concludeByScheduler(now)
	case r.Release == nil:
		r.finish(scheduler.Failed, scheduler.BootstrapFailed, r.bootstrapText(), now)
	case r.Outcome != nil: // ended by TERM, and the scheduler doesn't say why
		r.finish(scheduler.Failed, scheduler.WorkerLost, "the ranks were ended by a signal from outside: "+e.Text, now)
	case r.RunRead:
		r.finish(scheduler.Failed, scheduler.WorkerLost, "the job is over ("+e.Text+"), and rank "+gang.List(r.Unreported, r.hostOf)+" left no report", now)
	case now.Before(e.At.Add(reportsWait)):
		r.set(scheduler.Releasing, scheduler.StateLost, "the job is over ("+e.Text+"), and not every rank has reported; the owner's next command reads what they left")
	default:
		r.finish(scheduler.Failed, scheduler.StateLost, "the job is over ("+e.Text+"), and not every rank ever reported", now)
	}
}

// decidesAlone: what the scheduler says of a job's end that needs no report of a rank.
func (r *record) decidesAlone(reason scheduler.Reason) bool {
	switch reason {
	case scheduler.TimeLimitExceeded, scheduler.NodeFailed, scheduler.OutOfMemory, scheduler.Preempted:
		return true
	}
	return false
}

func (r *record) concludeOutcome(now time.Time) {
	o, e := *r.Outcome, r.Ending
	reason, message := r.words(o)
	switch o.Cause {
	case gang.Completed:
		if e.Phase != scheduler.Completed {
			r.Result = &api.Result{ExitCode: exitOr(e, 1), Rank: -1}
			r.finish(e.Phase, e.Reason, "every rank reported success, but the scheduler says "+e.Text, now)
			return
		}
		r.Result = &api.Result{Rank: o.Rank, Host: o.Host}
		r.finish(scheduler.Completed, "", "", now)
	case gang.Stopped:
		r.Result = nil
		if r.Lease != "" {
			r.Result = &api.Result{Rank: -1}
			r.finish(scheduler.Completed, reason, message, now)
			return
		}
		r.finish(scheduler.Cancelled, reason, message, now)
	case gang.CommandFailed:
		byScheduler := e.Phase == scheduler.Cancelled || e.Reason == scheduler.TimeLimitExceeded
		if r.Cancel == "" && (r.decidesAlone(e.Reason) && !byScheduler || byScheduler && r.Termed) {
			r.concludeByScheduler(now)
			return
		}
		r.Result = &api.Result{ExitCode: o.Code, Rank: o.Rank, Host: o.Host, Signal: o.Signal}
		r.finish(scheduler.Failed, reason, message, now)
	case gang.RankLost:
		if e.Reason == scheduler.NodeFailed {
			r.concludeByScheduler(now)
			return
		}
		r.finish(scheduler.Failed, reason, message, now)
	case gang.Walltime:
		if e.Reason == scheduler.NodeFailed && len(r.Unreported) > 0 { // the warning was for those that were left
			r.concludeByScheduler(now)
			return
		}
		r.Result = &api.Result{ExitCode: o.Code, Rank: o.Rank, Host: o.Host, Signal: o.Signal}
		r.finish(scheduler.Failed, reason, message, now)
	default:
		r.finish(scheduler.Failed, reason, message, now)
	}
}

func (r *record) concludeByScheduler(now time.Time) {
	e := r.Ending
	text := e.Text
	if e.Node != "" {
		text = fmt.Sprintf("node %s failed: %s", e.Node, text)
	} else if r.Outcome != nil && r.Outcome.Cause == gang.RankLost && r.Outcome.Host != "" {
		text = fmt.Sprintf("node %s failed: %s", r.Outcome.Host, text)
	} else if e.Reason == scheduler.NodeFailed && len(r.Unreported) > 0 {
		// The scheduler doesn't say which node; the ranks that never told their end were on it.
		text = fmt.Sprintf("a node failed, and there is no report of rank %s: %s", gang.List(r.Unreported, r.hostOf), text)
	}
	if e.Phase == scheduler.Cancelled {
		reason := e.Reason
		if reason == "" {
			reason = scheduler.UserCancelled
		}
		r.finish(scheduler.Cancelled, reason, text, now)
		return
	}
	r.Result = &api.Result{ExitCode: exitOr(e, 1), Rank: -1, Host: e.Node, Signal: e.Signal}
	r.finish(scheduler.Failed, e.Reason, text, now)
}

func (r *record) concludeAbsent(connected bool, deadline time.Duration, now time.Time) {
	if r.Absent.IsZero() {
		return
	}
	outside := r.Outcome != nil && r.endedFromOutside(*r.Outcome)
	if r.Over && r.Outcome != nil && !outside {
		// Every rank has reported, and the scheduler says nothing to the contrary.
		r.Ending = &ending{Phase: scheduler.Completed, Text: "no longer known to the scheduler", At: now}
		if r.Outcome.Cause != gang.Completed {
			r.Ending.Phase = scheduler.Failed
		}
		r.concludeOutcome(now)
		return
	}
	if r.Over {
		deadline = min(deadline, reportedAbsence)
	}
	if connected || now.Before(r.Absent.Add(deadline)) {
		return // ranks that are there say more than a scheduler that has forgotten them
	}
	if r.Cancel != "" {
		r.finish(scheduler.Cancelled, r.cancelReason(), "", now)
		return
	}
	if r.Over && outside { // and nobody says why
		r.finish(scheduler.Failed, scheduler.WorkerLost, fmt.Sprintf("the ranks were ended by a signal from outside, and job %s is no longer known to the scheduler: it was deleted, or its time was over", r.current().Job), now)
		return
	}
	r.finish(scheduler.Lost, scheduler.StateLost, fmt.Sprintf("neither queue nor accounting has known job %s for %s, and not every rank reported", r.current().Job, deadline), now)
}

// endedFromOutside tells whether the scheduler's TERM ended the ranks, be it that a command felt it before its agent.
func (r *record) endedFromOutside(o gang.Outcome) bool {
	const term = 15
	return o.Cause == gang.Undecided || o.Cause == gang.CommandFailed && r.Termed && (o.Signal == term || o.Code == 128+term)
}

// finish ends the workload, unless a recovery is left for what was lost.
func (r *record) finish(p scheduler.Phase, reason scheduler.Reason, message string, now time.Time) {
	lost := p == scheduler.Lost || p == scheduler.Failed &&
		(reason == scheduler.NodeFailed || reason == scheduler.Preempted || reason == scheduler.WorkerLost || reason == scheduler.StateLost)
	if lost && r.Recover > 0 && r.Cancel == "" {
		r.Recover--
		r.Resubmit = true
		r.note(fmt.Sprintf("allocation %s was lost in epoch %d (%s: %s); a new one is asked for", r.current().ID, r.Epoch, reason, message), now)
		r.Result = nil
		r.set(scheduler.Submitting, scheduler.StateLost, message)
		return
	}
	r.end(p, reason, message, now)
}

func (r *record) cancelReason() scheduler.Reason {
	if r.Cancel == "admin" {
		return scheduler.AdminCancelled
	}
	return scheduler.UserCancelled
}

// claimRefused is the batch script's own exit code where another job holds the allocation.
const claimRefused = 10

func (r *record) bootstrapText() string {
	e := r.Ending
	if e.ExitCode != nil && *e.ExitCode == claimRefused {
		return "the batch script could not claim the allocation; its output says why"
	}
	text := "the job ended before the gang was there (" + e.Text + ")"
	if n := len(r.NeverCame); n > 0 && n < r.Request.Size() {
		text += "; of rank " + gang.List(r.NeverCame, r.hostOf) + " nothing was ever heard"
	}
	return text + "; its output may say why"
}

func exitOr(e *ending, other int) int {
	switch {
	case e.Signal != 0:
		return 128 + e.Signal
	case e.ExitCode != nil && *e.ExitCode != 0:
		return *e.ExitCode
	}
	return other
}
