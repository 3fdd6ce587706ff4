package slurm

import (
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// stamp is how Slurm prints times; with TZ=UTC they are in UTC.
const stamp = "2006-01-02T15:04:05"

// meaning of a job state. The zero meaning is that of a state we don't know: the job keeps its phase, the word is shown.
type meaning struct {
	phase     scheduler.Phase
	reason    scheduler.Reason
	suspended bool
	held      bool
	requeued  bool
	message   string
}

// states by Slurm's long word and by the two letters that a site's wrapper may leave of it.
var states = map[string]meaning{
	"PENDING": {phase: scheduler.Pending}, "PD": {phase: scheduler.Pending},
	"REQUEUED": waitsAgain, "RQ": waitsAgain, "REQUEUE_FED": waitsAgain, "RF": waitsAgain,
	"REQUEUE_HOLD": heldAgain, "RH": heldAgain,
	"SPECIAL_EXIT": specialExit, "SE": specialExit,
	"RESV_DEL_HOLD": lostReservation, "RD": lostReservation,

	"RUNNING": {phase: scheduler.Granted}, "R": {phase: scheduler.Granted},
	"EXPEDITING": {phase: scheduler.Granted}, "EX": {phase: scheduler.Granted},
	"CONFIGURING": nodesBoot, "CF": nodesBoot, "POWER_UP_NODE": nodesBoot, "PU": nodesBoot,
	"SIGNALING": {phase: scheduler.Granted}, "SI": {phase: scheduler.Granted},
	"RESIZING": {phase: scheduler.Granted}, "RS": {phase: scheduler.Granted},
	"SUSPENDED": suspended, "S": suspended, "STOPPED": suspended, "ST": suspended,

	"COMPLETING": {phase: scheduler.Releasing}, "CG": {phase: scheduler.Releasing},
	"STAGE_OUT": {phase: scheduler.Releasing}, "SO": {phase: scheduler.Releasing},
	"UPDATE_DB": {phase: scheduler.Releasing}, "UD": {phase: scheduler.Releasing},

	"COMPLETED": {phase: scheduler.Completed}, "CD": {phase: scheduler.Completed},
	"CANCELLED": cancelled, "CA": cancelled,
	"FAILED": failed, "F": failed,
	"TIMEOUT": timeout, "TO": timeout,
	"DEADLINE": deadline, "DL": deadline,
	"NODE_FAIL": nodeFailed, "NF": nodeFailed,
	"BOOT_FAIL": bootFailed, "BF": bootFailed,
	"LAUNCH_FAILED": launchFailed, "LF": launchFailed,
	"RECONFIG_FAIL": bootFailed, "RC": bootFailed,
	"OUT_OF_MEMORY": outOfMemory, "OOM": outOfMemory,
	"PREEMPTED": preempted, "PR": preempted,

	// A federation started the job's sibling on another cluster and took this one back: nothing ended.
	"REVOKED": {message: "the job runs on another cluster of the federation"}, "RV": {message: "the job runs on another cluster of the federation"},
}

var (
	waitsAgain = meaning{phase: scheduler.Pending, requeued: true}
	heldAgain  = meaning{phase: scheduler.Pending, requeued: true, held: true,
		message: "requeued and held: it waits until somebody runs `scontrol release`"}
	specialExit = meaning{phase: scheduler.Pending, requeued: true, held: true,
		message: "requeued and held for its special exit code: it waits until somebody runs `scontrol release`"}
	lostReservation = meaning{phase: scheduler.Pending, held: true,
		message: "held: its reservation was deleted; it waits until somebody runs `scontrol release`"}
	nodesBoot = meaning{phase: scheduler.Granted, message: "its nodes are being made ready"}
	suspended = meaning{phase: scheduler.Granted, suspended: true}

	cancelled    = meaning{phase: scheduler.Cancelled, reason: scheduler.UserCancelled}
	failed       = meaning{phase: scheduler.Failed, reason: scheduler.CommandFailed}
	timeout      = meaning{phase: scheduler.Failed, reason: scheduler.TimeLimitExceeded}
	deadline     = meaning{phase: scheduler.Failed, reason: scheduler.TimeLimitExceeded, message: "its deadline passed"}
	nodeFailed   = meaning{phase: scheduler.Failed, reason: scheduler.NodeFailed}
	bootFailed   = meaning{phase: scheduler.Failed, reason: scheduler.NodeFailed, message: "its nodes could not be started"}
	launchFailed = meaning{phase: scheduler.Failed, reason: scheduler.BootstrapFailed, message: launchWords}
	outOfMemory  = meaning{phase: scheduler.Failed, reason: scheduler.OutOfMemory}
	preempted    = meaning{phase: scheduler.Failed, reason: scheduler.Preempted}
)

const launchWords = "the batch script could not be started: look whether its working directory and the folder of its output file " +
	"exist on the compute nodes and can be written there"

// launchSignal is the "signal" that Slurm says a script died of when it could not be started at all.
const launchSignal = 53

// lookUp returns the meaning of "CANCELLED by 1000", "COMPLETED+", "FAILED,REQUEUED" or a plain state.
func lookUp(state string) meaning {
	return states[baseState(state)]
}

func baseState(state string) string {
	if i := strings.IndexAny(state, " +,("); i >= 0 {
		state = state[:i]
	}
	return strings.ToUpper(state)
}

// observation is what the record says in the words of the scheduler package.
func (r record) observation() scheduler.Observation {
	m := lookUp(r.state)
	o := scheduler.Observation{
		Phase:      m.phase,
		Reason:     m.reason,
		Verbatim:   word(r.state),
		Message:    m.message,
		Name:       word(r.name),
		User:       word(r.user),
		Suspended:  m.suspended,
		Held:       m.held,
		Requeued:   m.requeued,
		SubmitTime: clock(r.submit),
		FailedNode: word(r.failedNode),
	}
	o.Restarts, _ = strconv.Atoi(r.restarts)
	if r.reason != "" && r.reason != "None" {
		o.Verbatim += "/" + word(r.reason)
	}
	if o.Phase == scheduler.Pending {
		o.Requeued = o.Requeued || o.Restarts > 0
		waiting(&o, r.reason)
		return o // its times are forecasts, its nodes those of an earlier run, its exit code none
	}
	o.StartTime = clock(r.start)
	o.Hosts, _ = expandHosts(r.nodes)
	if !o.Phase.Terminal() {
		return o
	}
	o.EndTime = clock(r.end)
	code, signal, ok := exitStatus(r.exit)
	if ok && signal == launchSignal {
		o.Reason, o.Message = scheduler.BootstrapFailed, launchWords
		return o // nothing ran, so nothing exited
	}
	switch {
	case !ok:
	case signal != 0:
		o.ExitSignal = signal
	case code != 0 || o.Phase == scheduler.Completed: // Slurm also writes 0:0 where it ended the script itself
		o.ExitCode = &code
	}
	if uid, found := strings.CutPrefix(r.state, "CANCELLED by "); found && r.uid != "" && strings.TrimSpace(uid) != r.uid {
		o.Reason = scheduler.AdminCancelled
	}
	return o
}

// clock reads a time; "Unknown", "N/A", "None" and whatever else is no time are the zero time.
func clock(s string) time.Time {
	t, err := time.Parse(stamp, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// exitStatus reads "3:0" (code and signal) and squeue's raw wait status, 768 for the same. Accounting takes 128 off the
// codes above 127, so that its "15:0" may have been 143; the queue tells them whole, and is asked first.
func exitStatus(s string) (code, signal int, ok bool) {
	if c, sig, both := strings.Cut(s, ":"); both {
		code, err := strconv.Atoi(c)
		if err != nil || code < 0 || code > 255 {
			return 0, 0, false
		}
		signal, err := strconv.Atoi(sig)
		if err != nil || signal < 0 || signal > 255 {
			return 0, 0, false
		}
		return code, signal, true
	}
	status, err := strconv.Atoi(s)
	if err != nil || status < 0 || status > 0xffff {
		return 0, 0, false
	}
	if signal := status & 0x7f; signal != 0 {
		return 0, signal, true
	}
	return status >> 8, 0, true
}
