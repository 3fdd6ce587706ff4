package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

var machineNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const absence = 10 * time.Minute

// submittedRecord is a workload of two ranks whose job 7 is in the queue.
func submittedRecord() *record {
	r := &record{
		ID: "wl_0123456789ab", UID: 1000, Owner: "me", Phase: scheduler.Submitting, Created: machineNow.Add(-time.Hour), Version: 1,
		Request:  scheduler.Request{Nodes: 2, RanksPerNode: 1, Walltime: time.Hour, GangTimeout: 10 * time.Minute, RuntimeDir: "/run"},
		Attempts: []allocation{{ID: "alloc_0123456789ab", Epochs: 1, JobName: "openai4s-fold-0123456789ab"}},
	}
	r.submitted(api.Submission{Outcome: scheduler.Created, Job: scheduler.JobID{ID: "7"}}, machineNow.Add(-time.Hour))
	return r
}

// activeRecord is the same with its gang released.
func activeRecord() *record {
	r := submittedRecord()
	r.observed(scheduler.Observation{Phase: scheduler.Granted, Hosts: []string{"n1", "n2"}}, machineNow)
	r.released(release{Members: make([]gang.Member, 2)}, machineNow)
	return r
}

func over(o gang.Outcome) func(*record) {
	return func(r *record) { r.gangOver(o, true, o.Cause == gang.Undecided) }
}

func code(n int) *int { return &n }

func terminal(p scheduler.Phase, reason scheduler.Reason, exit *int) scheduler.Observation {
	return scheduler.Observation{Phase: p, Reason: reason, Verbatim: "STATE", ExitCode: exit}
}

var (
	completed = gang.Outcome{Cause: gang.Completed}
	failed3   = gang.Outcome{Cause: gang.CommandFailed, Code: 3, Rank: 1, Host: "n2"}
	undecided = gang.Outcome{Cause: gang.Undecided, Code: 143}
	lostRank  = gang.Outcome{Cause: gang.RankLost, Code: 1, Rank: 1, Host: "n2", Missing: []int{1}}
	atWall    = gang.Outcome{Cause: gang.Walltime, Code: 143}
	noShow    = gang.Outcome{Cause: gang.RegistrationTimeout, Code: 1, Rank: 1, Missing: []int{1}}
)

// TestConclusions holds the gang's outcome against the scheduler's word of the job's end.
func TestConclusions(t *testing.T) {
	tests := []struct {
		name   string
		gang   *gang.Outcome // nil: no gang was over
		said   scheduler.Observation
		phase  scheduler.Phase
		reason scheduler.Reason
		exit   int // -1: no result
	}{
		{"all reported, job completed", &completed, terminal(scheduler.Completed, "", code(0)), scheduler.Completed, "", 0},
		{"all reported, job failed", &completed, terminal(scheduler.Failed, scheduler.CommandFailed, code(9)), scheduler.Failed, scheduler.CommandFailed, 9},
		{"all reported, killed at its walltime (31)", &completed, terminal(scheduler.Failed, scheduler.TimeLimitExceeded, nil), scheduler.Failed, scheduler.TimeLimitExceeded, 1},
		{"all reported, job cancelled", &completed, terminal(scheduler.Cancelled, scheduler.UserCancelled, nil), scheduler.Cancelled, scheduler.UserCancelled, 1},
		{"failed 3, job failed 3", &failed3, terminal(scheduler.Failed, scheduler.CommandFailed, code(3)), scheduler.Failed, scheduler.CommandFailed, 3},
		{"failed 3, job completed", &failed3, terminal(scheduler.Completed, "", code(0)), scheduler.Failed, scheduler.CommandFailed, 3},
		{"failed 3, cancelled afterwards", &failed3, terminal(scheduler.Cancelled, scheduler.UserCancelled, nil), scheduler.Failed, scheduler.CommandFailed, 3},
		{"failed as memory ran out", &failed3, terminal(scheduler.Failed, scheduler.OutOfMemory, code(137)), scheduler.Failed, scheduler.OutOfMemory, 137},
		{"failed as its node did", &failed3, terminal(scheduler.Failed, scheduler.NodeFailed, nil), scheduler.Failed, scheduler.NodeFailed, 1},
		{"termed, cancelled", &undecided, terminal(scheduler.Cancelled, scheduler.UserCancelled, nil), scheduler.Cancelled, scheduler.UserCancelled, -1},
		{"termed, at its walltime", &undecided, terminal(scheduler.Failed, scheduler.TimeLimitExceeded, nil), scheduler.Failed, scheduler.TimeLimitExceeded, 1},
		{"termed, preempted", &undecided, terminal(scheduler.Failed, scheduler.Preempted, nil), scheduler.Failed, scheduler.Preempted, 1},
		{"termed, and the scheduler says nothing of it", &undecided, terminal(scheduler.Completed, "", code(0)), scheduler.Failed, scheduler.WorkerLost, -1},
		{"lost rank", &lostRank, terminal(scheduler.Failed, scheduler.CommandFailed, code(1)), scheduler.Failed, scheduler.WorkerLost, -1},
		{"lost rank of a failed node", &lostRank, terminal(scheduler.Failed, scheduler.NodeFailed, nil), scheduler.Failed, scheduler.NodeFailed, 1},
		{"the walltime's warning", &atWall, terminal(scheduler.Failed, scheduler.CommandFailed, code(143)), scheduler.Failed, scheduler.TimeLimitExceeded, 143},
		{"ranks that never came", &noShow, terminal(scheduler.Failed, scheduler.CommandFailed, code(1)), scheduler.Failed, scheduler.WorkerRegistrationTimeout, -1},
		{"no reports, cancelled", nil, terminal(scheduler.Cancelled, scheduler.UserCancelled, nil), scheduler.Cancelled, scheduler.UserCancelled, -1},
		{"no reports, cancelled by an operator", nil, terminal(scheduler.Cancelled, scheduler.AdminCancelled, nil), scheduler.Cancelled, scheduler.AdminCancelled, -1},
		{"no reports, at its walltime", nil, terminal(scheduler.Failed, scheduler.TimeLimitExceeded, nil), scheduler.Failed, scheduler.TimeLimitExceeded, 1},
		{"no reports, node failed", nil, terminal(scheduler.Failed, scheduler.NodeFailed, nil), scheduler.Failed, scheduler.NodeFailed, 1},
		{"no reports, out of memory", nil, terminal(scheduler.Failed, scheduler.OutOfMemory, code(137)), scheduler.Failed, scheduler.OutOfMemory, 137},
		{"no reports, preempted", nil, terminal(scheduler.Failed, scheduler.Preempted, nil), scheduler.Failed, scheduler.Preempted, 1},
		{"no reports, completed", nil, terminal(scheduler.Completed, "", code(0)), scheduler.Releasing, scheduler.StateLost, -1},
		{"no reports, failed", nil, terminal(scheduler.Failed, scheduler.CommandFailed, code(3)), scheduler.Releasing, scheduler.StateLost, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := activeRecord()
			if tt.gang != nil {
				over(*tt.gang)(r)
				r.conclude(false, absence, machineNow)
				require.False(t, r.Phase.Terminal(), "the job lives on")
			}
			r.observed(tt.said, machineNow)
			r.conclude(false, absence, machineNow)
			assert.Equal(t, tt.phase, r.Phase)
			assert.Equal(t, tt.reason, r.Reason)
			if tt.exit < 0 {
				assert.Nil(t, r.Result)
				return
			}
			require.NotNil(t, r.Result)
			assert.Equal(t, tt.exit, r.Result.ExitCode)
		})
	}
}

func TestEndBeforeRelease(t *testing.T) {
	r := submittedRecord()
	r.observed(terminal(scheduler.Failed, scheduler.CommandFailed, code(claimRefused)), machineNow)
	r.conclude(false, absence, machineNow)
	assert.Equal(t, scheduler.Failed, r.Phase)
	assert.Equal(t, scheduler.BootstrapFailed, r.Reason)
	assert.Contains(t, r.Message, "could not claim")

	// The launcher gave up as one host was dead: who never came is said, unless nobody did.
	for missing, says := range map[int]string{1: "of rank 0 (n1) nothing was ever heard", 2: "its output may say why"} {
		r = submittedRecord()
		r.Seen.Hosts, r.NeverCame = []string{"n1", "n2"}, []int{0, 1}[:missing]
		r.observed(terminal(scheduler.Failed, scheduler.CommandFailed, code(1)), machineNow)
		r.conclude(false, absence, machineNow)
		assert.Equal(t, scheduler.BootstrapFailed, r.Reason)
		assert.Contains(t, r.Message, says)
		assert.Equal(t, missing == 1, strings.Contains(r.Message, "ever heard"))
	}
}

func TestConnectedRanksMayStillReport(t *testing.T) {
	r := activeRecord()
	r.observed(terminal(scheduler.Completed, "", code(0)), machineNow)
	r.conclude(true, absence, machineNow.Add(settleTime-1))
	assert.Equal(t, scheduler.Active, r.Phase)
	r.gangOver(completed, true, false)
	r.conclude(true, absence, machineNow.Add(settleTime-1))
	assert.Equal(t, scheduler.Completed, r.Phase)
}

func TestReportsAreWaitedForAWeek(t *testing.T) {
	r := activeRecord()
	r.observed(terminal(scheduler.Completed, "", code(0)), machineNow)
	r.conclude(false, absence, machineNow.Add(reportsWait-1))
	assert.Equal(t, scheduler.Releasing, r.Phase)
	r.conclude(false, absence, machineNow.Add(reportsWait))
	assert.Equal(t, scheduler.Failed, r.Phase)
	assert.Equal(t, scheduler.StateLost, r.Reason)
}

func TestRanksWithoutReportAreNamed(t *testing.T) {
	r := activeRecord()
	r.observed(terminal(scheduler.Completed, "", code(0)), machineNow)
	r.RunRead, r.Unreported = true, []int{1}
	r.conclude(false, absence, machineNow)
	assert.Equal(t, scheduler.Failed, r.Phase)
	assert.Equal(t, scheduler.WorkerLost, r.Reason)
	assert.Contains(t, r.Message, "rank 1 (n2) left no report")
}

// A scheduler may see a node's failure so late that the walltime's warning came to the other ranks first.
func TestNodeFailedBeforeTheWalltimesWarning(t *testing.T) {
	nodeFailed := terminal(scheduler.Failed, scheduler.NodeFailed, nil)
	for name, unreported := range map[string][]int{"a rank never told its end": {1}, "every rank did": nil} {
		r := activeRecord()
		over(atWall)(r)
		r.Unreported = unreported
		r.observed(nodeFailed, machineNow)
		r.conclude(false, absence, machineNow)
		assert.Equal(t, scheduler.Failed, r.Phase, name)
		want := scheduler.TimeLimitExceeded
		if unreported != nil {
			want = scheduler.NodeFailed
			assert.Contains(t, r.Message, "rank 1 (n2)", name)
		}
		assert.Equal(t, want, r.Reason, name)
	}
}

// Cases 24 and 25: no answer, and an empty one, change no state.
func TestCase24And25NoAnswerMovesNothing(t *testing.T) {
	for name, r := range map[string]*record{"pending": submittedRecord(), "active": activeRecord()} {
		before := *r
		for i := range 1000 {
			r.conclude(false, absence, machineNow.Add(time.Duration(i)*time.Hour))
		}
		assert.Equal(t, before, *r, name)
	}
}

// Case 26: a job that queue and accounting have forgotten.
func TestCase26ForgottenJob(t *testing.T) {
	absentAt := func(r *record) *record { r.Absent = machineNow; return r }
	t.Run("the ranks' own reports come first", func(t *testing.T) {
		r := activeRecord()
		over(completed)(r)
		absentAt(r).conclude(false, absence, machineNow)
		assert.Equal(t, scheduler.Completed, r.Phase)
		assert.Equal(t, 0, r.Result.ExitCode)
	})
	t.Run("failed reports too", func(t *testing.T) {
		r := activeRecord()
		over(failed3)(r)
		absentAt(r).conclude(false, absence, machineNow)
		assert.Equal(t, scheduler.Failed, r.Phase)
		assert.Equal(t, 3, r.Result.ExitCode)
	})
	t.Run("without reports it is lost after the deadline", func(t *testing.T) {
		r := absentAt(activeRecord())
		r.conclude(false, absence, machineNow.Add(absence-1))
		assert.Equal(t, scheduler.Active, r.Phase)
		r.conclude(false, absence, machineNow.Add(absence))
		assert.Equal(t, scheduler.Lost, r.Phase)
		assert.Equal(t, scheduler.StateLost, r.Reason)
	})
	for name, end := range map[string]func(*record){
		"all reported, ended from outside": over(undecided),
		"a command felt it first": func(r *record) {
			r.gangOver(gang.Outcome{Cause: gang.CommandFailed, Code: 143, Signal: 15}, true, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := activeRecord()
			end(r)
			absentAt(r).conclude(false, absence, machineNow.Add(reportedAbsence-1))
			assert.Equal(t, scheduler.Releasing, r.Phase, "the scheduler may still say why")
			r.conclude(false, absence, machineNow.Add(reportedAbsence))
			assert.Equal(t, scheduler.Failed, r.Phase)
			assert.Equal(t, scheduler.WorkerLost, r.Reason)
			assert.Contains(t, r.Message, "no longer known to the scheduler")
		})
	}
	t.Run("a command's own signal 15", func(t *testing.T) {
		r := activeRecord()
		r.gangOver(gang.Outcome{Cause: gang.CommandFailed, Code: 143, Signal: 15}, true, false)
		absentAt(r).conclude(false, absence, machineNow)
		assert.Equal(t, scheduler.CommandFailed, r.Reason)
	})
	t.Run("ranks that are there say more", func(t *testing.T) {
		r := absentAt(activeRecord())
		r.conclude(true, absence, machineNow.Add(100*absence))
		assert.Equal(t, scheduler.Active, r.Phase)
	})
	t.Run("seen again", func(t *testing.T) {
		r := absentAt(activeRecord())
		r.observed(scheduler.Observation{Phase: scheduler.Granted}, machineNow.Add(absence/2))
		r.conclude(false, absence, machineNow.Add(2*absence))
		assert.Equal(t, scheduler.Active, r.Phase)
	})
	t.Run("cancelled", func(t *testing.T) {
		r := absentAt(activeRecord())
		r.Cancel = "user"
		r.conclude(false, absence, machineNow.Add(absence))
		assert.Equal(t, scheduler.Cancelled, r.Phase)
	})
}

// Case 32: a requeue is the next epoch of the same allocation.
func TestCase32RequeueIsTheNextEpoch(t *testing.T) {
	r := activeRecord()
	r.Request.Restarts, r.Attempts[0].Epochs = 2, 3
	over(undecided)(r)
	r.conclude(false, absence, machineNow)
	require.Equal(t, scheduler.Releasing, r.Phase)

	r.observed(scheduler.Observation{Phase: scheduler.Pending, Requeued: true, Restarts: 1}, machineNow)
	r.conclude(false, absence, machineNow)
	assert.Equal(t, scheduler.Pending, r.Phase)
	assert.Equal(t, scheduler.StateLost, r.Reason)
	assert.Equal(t, int64(0), r.Epoch, "until a rank shows the next one's credential")
	require.Len(t, r.History, 1)

	r.observed(scheduler.Observation{Phase: scheduler.Pending, Requeued: true, Restarts: 1}, machineNow)
	assert.Len(t, r.History, 1, "said once")
	r.advance(1, machineNow)
	assert.Equal(t, scheduler.Granted, r.Phase)
	assert.Nil(t, r.Outcome)
	assert.False(t, r.Requeued)
	assert.Equal(t, "7", r.current().Job.ID)

	r.advance(0, machineNow)
	assert.Equal(t, int64(1), r.Epoch, "an epoch only grows")
}

func TestRequeuedJobThatIsCancelled(t *testing.T) {
	r := activeRecord()
	r.Request.Restarts, r.Attempts[0].Epochs = 1, 2
	over(undecided)(r)
	r.observed(scheduler.Observation{Phase: scheduler.Pending, Requeued: true}, machineNow)
	r.observed(terminal(scheduler.Cancelled, scheduler.UserCancelled, nil), machineNow)
	r.conclude(false, absence, machineNow)
	assert.Equal(t, scheduler.Cancelled, r.Phase)
}

func TestRecovery(t *testing.T) {
	for name, end := range map[string]func(*record){
		"node failed":   func(r *record) { r.observed(terminal(scheduler.Failed, scheduler.NodeFailed, nil), machineNow) },
		"preempted":     func(r *record) { r.observed(terminal(scheduler.Failed, scheduler.Preempted, nil), machineNow) },
		"lost rank":     func(r *record) { over(lostRank)(r); r.observed(terminal(scheduler.Failed, "", code(1)), machineNow) },
		"job is absent": func(r *record) { r.Absent = machineNow.Add(-absence) },
	} {
		t.Run(name, func(t *testing.T) {
			r := activeRecord()
			r.Recover = 1
			end(r)
			r.conclude(false, absence, machineNow)
			assert.Equal(t, scheduler.Submitting, r.Phase, "not lost while a recovery is left")
			assert.Equal(t, scheduler.StateLost, r.Reason)
			assert.True(t, r.Resubmit)
			assert.Len(t, r.History, 1)

			// Until the owner's command has asked for the next allocation the lost one decides nothing more.
			before := *r
			r.conclude(false, absence, machineNow.Add(time.Hour))
			assert.Equal(t, before, *r)

			r.forgetJob()
			r.Attempts = append(r.Attempts, allocation{ID: "alloc_ffffffffffff", FirstEpoch: 1, Epochs: 1})
			r.submitted(api.Submission{Outcome: scheduler.Created, Job: scheduler.JobID{ID: "8"}}, machineNow)
			assert.Equal(t, scheduler.Pending, r.Phase)
			r.advance(1, machineNow)
			r.released(release{Members: make([]gang.Member, 2)}, machineNow)
			end(r)
			r.conclude(false, absence, machineNow)
			assert.True(t, r.Phase.Terminal(), "none is left")
		})
	}
	t.Run("a failed command is not recovered", func(t *testing.T) {
		r := activeRecord()
		r.Recover = 1
		over(failed3)(r)
		r.observed(terminal(scheduler.Failed, scheduler.CommandFailed, code(3)), machineNow)
		r.conclude(false, absence, machineNow)
		assert.Equal(t, scheduler.Failed, r.Phase)
	})
}

func TestSubmissions(t *testing.T) {
	fresh := func() *record {
		r := submittedRecord()
		r.Phase, r.Attempts[0].Job, r.Attempts[0].Outcome = scheduler.Submitting, scheduler.JobID{}, ""
		return r
	}
	job := scheduler.JobID{Cluster: "c3", ID: "12"}
	for _, tt := range []struct {
		name   string
		before func(*record)
		said   api.Submission
		phase  scheduler.Phase
		reason scheduler.Reason
		job    scheduler.JobID
	}{
		{"created", nil, api.Submission{Outcome: scheduler.Created, Job: job}, scheduler.Pending, "", job},
		{"existing", nil, api.Submission{Outcome: scheduler.Existing, Job: job}, scheduler.Pending, "", job},
		{"unknown", nil, api.Submission{Outcome: scheduler.Unknown, Text: "timed out"}, scheduler.Submitting, scheduler.BackendSubmissionUnknown, scheduler.JobID{}},
		{"rejected", nil, api.Submission{Outcome: scheduler.Rejected, Text: "no"}, scheduler.Failed, scheduler.BackendRejected, scheduler.JobID{}},
		{"rejected for a reason", nil, api.Submission{Outcome: scheduler.Rejected, Reason: scheduler.PolicyRejected}, scheduler.Failed, scheduler.PolicyRejected, scheduler.JobID{}},
		{"rejected once cancelled", func(r *record) { r.Cancel = "user" }, api.Submission{Outcome: scheduler.Rejected}, scheduler.Cancelled, scheduler.UserCancelled, scheduler.JobID{}},
		{"rejected, and yet a rank came", func(r *record) { r.bind(r.current(), "12") }, api.Submission{Outcome: scheduler.Rejected}, scheduler.Submitting, "", scheduler.JobID{ID: "12"}},
		{"unknown after created", func(r *record) { r.submitted(api.Submission{Outcome: scheduler.Created, Job: job}, machineNow) }, api.Submission{Outcome: scheduler.Unknown}, scheduler.Pending, "", job},
		{"another job than the one whose ranks came", func(r *record) { r.bind(r.current(), "11") }, api.Submission{Outcome: scheduler.Created, Job: job}, scheduler.Pending, "", scheduler.JobID{ID: "11"}},
		{"the job whose ranks came, with its cluster", func(r *record) { r.bind(r.current(), "12") }, api.Submission{Outcome: scheduler.Created, Job: job}, scheduler.Pending, "", job},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := fresh()
			if tt.before != nil {
				tt.before(r)
			}
			r.submitted(tt.said, machineNow)
			assert.Equal(t, tt.phase, r.Phase)
			assert.Equal(t, tt.reason, r.Reason)
			assert.Equal(t, tt.job, r.current().Job)
		})
	}
}

func TestBindHoldsTheFirstJob(t *testing.T) {
	r := submittedRecord()
	a := r.current()
	assert.True(t, r.bind(a, ""), "a peer without an id binds nothing")
	assert.Empty(t, a.Bound)
	assert.True(t, r.bind(a, "8"))
	assert.Equal(t, "8", a.Job.ID, "the bound id replaces what was reported")
	assert.True(t, r.bind(a, "8"))
	assert.False(t, r.bind(a, "7"))
}

// Case 37: an id is opaque, but for a server's name that people leave away.
func TestCase37JobsAreFoundByWhatPeopleType(t *testing.T) {
	for id, found := range map[string][]string{"12.pbshead": {"12.pbshead", "12"}, "7": {"7"}, "3[].srv": {"3[].srv", "3[]"}, "": nil} {
		r := submittedRecord()
		r.current().Job = scheduler.JobID{ID: id}
		for _, text := range []string{"12.pbshead", "12", "7", "3[].srv", "3[]", "1", "pbshead", ".pbshead", ""} {
			assert.Equal(t, slices.Contains(found, text), r.jobOf(text), "%q for %q", text, id)
		}
	}
}
