package pbs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// Substates that say more than the state's letter.
const (
	substateDepends = "22" // held until another job did something
	substateDeleted = "91" // by qdel
	substateEnded   = "92" // with success, or without having run
)

// Beginnings and ends of a job's comment. It is text for people, and used only where no code says the same.
const (
	neverRuns    = "Can Never Run"
	terminatedBy = " and terminated by "
	tooManyTries = "too many failed attempts"
)

// failedToStart are the exit codes by which an execution host says that the job never began; the server tries
// again, or gives up and holds it.
var failedToStart = []int{-1, -2, -3}

// endings are the negative exit codes: the scheduler's own account of a job that it ended.
var endings = map[int]struct {
	reason scheduler.Reason
	words  string
}{
	-20: {scheduler.NodeFailed, "the first node of the job was lost"},
	-24: {scheduler.CommandFailed, "the job used more processors than it asked for"},
	-25: {scheduler.CommandFailed, "the job used more processors than it asked for"},
	-26: {scheduler.OutOfMemory, "the job exceeded its virtual memory"},
	-27: {scheduler.OutOfMemory, "the job exceeded its memory"},
	-28: {scheduler.TimeLimitExceeded, "the job exceeded its processor time"},
	-29: {scheduler.TimeLimitExceeded, "the job exceeded its walltime"},
}

// signalBase is what the exit code of a job ended by a signal begins at: 256 + the signal.
const signalBase = 256

// observe turns a record into an observation. ok is false where the record is no whole job.
func (r record) observe() (o scheduler.Observation, ok bool) {
	state := r.early("job_state")
	if state == "" || r.early("Job_Name") == "" {
		return o, false
	}
	substate := r.early("substate")
	o = scheduler.Observation{
		Verbatim:   oneLine(state + "/" + substate),
		Name:       r.early("Job_Name"),
		User:       owner(r.early("Job_Owner")),
		SubmitTime: stamp(r.early("ctime")),
		StartTime:  stamp(r.early("stime")),
		Hosts:      hosts(r.early("exec_host")),
	}
	runs := r.number("run_count")
	if runs > 0 {
		o.Restarts = runs - 1
	}
	comment, _ := r.late("comment")
	switch state {
	case "Q", "T", "W", "H":
		r.waiting(&o, state, substate, runs, comment)
	case "R":
		o.Phase = scheduler.Granted
	case "S", "U":
		o.Phase, o.Suspended = scheduler.Granted, true
	case "E":
		o.Phase = scheduler.Releasing
	case "F", "X":
		r.ended(&o, substate, comment)
	case "M":
		o.Message = "the job was moved to another server: " + oneLine(r.early("queue"))
	}
	return o, true
}

// waiting fills in a job that does not run now.
func (r record) waiting(o *scheduler.Observation, state, substate string, runs int, comment string) {
	o.Phase = scheduler.Pending
	o.Message = oneLine(comment) // why it waits; of a job that runs or ended, the comment says nothing that isn't known
	code, coded := r.exitStatus()
	failing := coded && slices.Contains(failedToStart, code) || strings.Contains(comment, tooManyTries)
	if runs > 0 && !failing {
		o.Requeued, o.Restarts = true, runs
	}
	if strings.HasPrefix(comment, neverRuns) {
		o.Reason = scheduler.Unschedulable
		o.Message = "it can't run as it is: " + o.Message + "; cancel it and submit it anew, or ask the site's administrators"
	}
	if state != "H" {
		return
	}
	if substate == substateDepends {
		o.Message = "waits for another job"
		return
	}
	o.Held = true
	switch kinds := r.early("Hold_Types"); {
	case failing:
		o.Message = fmt.Sprintf("held by the scheduler after %d failed attempts to start it; often a node can't write the job's folder, or refuses the job", runs)
		if coded {
			o.Message += fmt.Sprintf(" (exit code %d)", code)
		}
	case strings.ContainsAny(kinds, "so"):
		o.Message = "held by an operator or by the scheduler; the site can release it"
	default:
		o.Message = "held by its user; `qrls` releases it"
	}
}

// ended fills in a job that is over.
func (r record) ended(o *scheduler.Observation, substate, comment string) {
	o.EndTime = r.endTime()
	code, coded := r.exitStatus()
	_, by, removed := strings.Cut(comment, terminatedBy)
	switch {
	case substate == substateDeleted, removed && code == signalBase+15:
		o.Phase, o.Reason = scheduler.Cancelled, scheduler.UserCancelled
		if who := owner(strings.TrimSpace(by)); removed && who != o.User {
			o.Reason = scheduler.AdminCancelled
		}
		if code > signalBase {
			o.ExitSignal = code - signalBase
		}
	case !coded && len(o.Hosts) == 0:
		o.Phase, o.Reason = scheduler.Failed, scheduler.Unschedulable
		o.Message = "the job ended without having run; what it depended on can't happen any more"
	case !coded:
		o.Phase, o.Reason = scheduler.Failed, scheduler.StateLost
		o.Message = "the job ended, and the scheduler doesn't say how"
	case code < 0:
		o.Phase, o.Reason = scheduler.Failed, scheduler.BootstrapFailed
		o.Message = fmt.Sprintf("the scheduler could not start the job (exit code %d)", code)
		if end, known := endings[code]; known {
			o.Reason, o.Message = end.reason, end.words
		}
		if o.Reason == scheduler.NodeFailed && len(o.Hosts) > 0 {
			o.FailedNode = o.Hosts[0]
		}
		o.ExitCode = &code
	case code >= signalBase:
		o.Phase, o.Reason, o.ExitSignal = scheduler.Failed, scheduler.CommandFailed, code-signalBase
	case code == 0 && substate == substateEnded:
		o.Phase, o.ExitCode = scheduler.Completed, &code
		if staged, said := r.late("Stageout_status"); said && staged == "0" {
			o.Message = "the job's output could not be delivered to where it should go"
		}
	default:
		o.Phase, o.Reason, o.ExitCode = scheduler.Failed, scheduler.CommandFailed, &code
		if code == 254 {
			o.Message = "exit code 254: the job's program or shell could not be run, or ended so itself"
		}
	}
}

func (r record) exitStatus() (code int, ok bool) {
	text, ok := r.late("Exit_status")
	if !ok {
		return 0, false
	}
	code, err := strconv.Atoi(text)
	return code, err == nil
}

func (r record) number(name string) int {
	text, _ := r.late(name)
	n, _ := strconv.Atoi(text)
	return max(n, 0)
}

// endTime is when the execution host reported the end, or else when the server wrote its history.
func (r record) endTime() time.Time {
	if t := stamp(r.early("obittime")); !t.IsZero() {
		return t
	}
	if text, ok := r.late("history_timestamp"); ok {
		if sec, err := strconv.ParseInt(text, 10, 64); err == nil && sec > 0 {
			return time.Unix(sec, 0).UTC()
		}
	}
	return time.Time{}
}

// stamp reads the time form of qstat, in UTC since its TZ says so. Zero where there is none.
func stamp(s string) time.Time {
	t, err := time.Parse(time.ANSIC, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// owner is the user of "user@host".
func owner(s string) string {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return s[:i]
	}
	return s
}

// hosts are the distinct hosts of "n1/0+n2/1*2+n2/2", in that order: the order of the job's node file.
func hosts(exec string) []string {
	var out []string
	for chunk := range strings.SplitSeq(exec, "+") {
		if host, _, _ := strings.Cut(chunk, "/"); host != "" && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}
