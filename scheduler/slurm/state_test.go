package slurm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/openai4s/hpc/scheduler"
)

func TestCase30EveryState(t *testing.T) {
	type told struct {
		phase                     scheduler.Phase
		reason                    scheduler.Reason
		suspended, held, requeued bool
	}
	pending, granted, releasing := told{phase: scheduler.Pending}, told{phase: scheduler.Granted}, told{phase: scheduler.Releasing}
	asleep := told{phase: scheduler.Granted, suspended: true}
	again := told{phase: scheduler.Pending, requeued: true}
	held := told{phase: scheduler.Pending, requeued: true, held: true}
	failed := func(r scheduler.Reason) told { return told{phase: scheduler.Failed, reason: r} }
	cancelled := told{phase: scheduler.Cancelled, reason: scheduler.UserCancelled}
	for state, want := range map[string]told{
		"PENDING": pending, "PD": pending, "RUNNING": granted, "R": granted,
		"CONFIGURING": granted, "CF": granted, "POWER_UP_NODE": granted,
		"SIGNALING": granted, "SI": granted, "RESIZING": granted, "EXPEDITING": granted,
		"SUSPENDED": asleep, "S": asleep, "STOPPED": asleep, "ST": asleep,
		"COMPLETING": releasing, "CG": releasing, "STAGE_OUT": releasing, "SO": releasing, "UPDATE_DB": releasing,
		"REQUEUED": again, "REQUEUE_FED": again, "REQUEUE_HOLD": held, "SPECIAL_EXIT": held,
		"RESV_DEL_HOLD": {phase: scheduler.Pending, held: true},
		"COMPLETED":     {phase: scheduler.Completed}, "CD": {phase: scheduler.Completed},
		"CANCELLED": cancelled, "CA": cancelled, "CANCELLED by 1000": cancelled, "CANCELLED+": cancelled,
		"CANCELLED by 0": {phase: scheduler.Cancelled, reason: scheduler.AdminCancelled},
		"FAILED":         failed(scheduler.CommandFailed), "FAILED,REQUEUED": failed(scheduler.CommandFailed),
		"TIMEOUT": failed(scheduler.TimeLimitExceeded), "TO": failed(scheduler.TimeLimitExceeded),
		"DEADLINE": failed(scheduler.TimeLimitExceeded), "NODE_FAIL": failed(scheduler.NodeFailed), "NF": failed(scheduler.NodeFailed),
		"BOOT_FAIL": failed(scheduler.NodeFailed), "LAUNCH_FAILED": failed(scheduler.BootstrapFailed),
		"RECONFIG_FAIL": failed(scheduler.NodeFailed),
		"OUT_OF_MEMORY": failed(scheduler.OutOfMemory), "OUT_OF_ME+": {}, // cut by a table: not guessed
		"PREEMPTED": failed(scheduler.Preempted),
		"REVOKED":   {}, "FROBNICATING": {}, "": {},
	} {
		t.Run(state, func(t *testing.T) {
			o := record{state: state, uid: "1000", nodes: "n[1-2]", exit: "0:0"}.observation()
			assert.Equal(t, want, told{o.Phase, o.Reason, o.Suspended, o.Held, o.Requeued})
			assert.Equal(t, state, o.Verbatim, "the word is shown as it is")
			if want.held {
				assert.Contains(t, o.Message, "scontrol release")
			}
		})
	}
}

func TestCase30WhyItWaits(t *testing.T) {
	const never, later, held, plain = "never", "later", "held", "plain"
	for reason, want := range map[string]struct{ kind, message string }{
		"None": {plain, ""}, "Resources": {plain, ""}, "Priority": {plain, ""}, "Dependency": {plain, ""}, "BeginTime": {plain, ""},
		"Licenses": {plain, ""}, "Reservation": {plain, ""}, "SomethingNew": {plain, ""}, "": {plain, ""},

		"JobHeldUser":                             {held, "its owner"},
		"JobHeldAdmin":                            {held, "an administrator"},
		"JobHoldMaxRequeue":                       {held, "requeued as often"},
		"launch failed requeued held":             {held, "could not start it"},
		"launch_failed_requeued_held":             {held, "could not start it"},
		"(launch failed requeued held)":           {held, "could not start it"},
		"user env retrieval failed requeued held": {held, "scontrol release"},

		"PartitionNodeLimit":            {never, "nodes"},
		"PartitionTimeLimit":            {never, "time"},
		"PartitionConfig":               {never, "partition"},
		"BadConstraints":                {never, "features"},
		"InvalidAccount":                {never, "account"},
		"InvalidQOS":                    {never, "QoS"},
		"AccountNotAllowed":             {never, "account"},
		"DependencyNeverSatisfied":      {never, "depends on failed"},
		"QOSMaxWallDurationPerJobLimit": {never, "QOSMaxWallDurationPerJobLimit"},
		"AssocMaxCpuPerJobLimit":        {never, "AssocMaxCpuPerJobLimit"},
		"AssocMaxGRESPerNode":           {never, "AssocMaxGRESPerNode"},
		"QOSMinGRES":                    {never, "QOSMinGRES"},

		"AssocMaxJobsLimit":                    {later, "passes as other jobs end"},
		"QOSMaxJobsPerUserLimit":               {later, "passes as other jobs end"},
		"QOSMaxCpuPerUserLimit":                {later, "passes as other jobs end"},
		"AssocGrpGRES":                         {later, "passes as other jobs end"},
		"AssocGrpCPUMinutesLimit":              {later, "budget"},
		"QOSGrpBillingMinutes":                 {later, "budget"},
		"ReqNodeNotAvail, UnavailableNodes:n3": {later, "down, drained or reserved"},
		"(Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)": {later, "down, drained or reserved"},
		"PartitionDown": {later, "closed for now"},
	} {
		t.Run(reason, func(t *testing.T) {
			o := record{state: "PENDING", reason: reason, exit: "0:0"}.observation()
			assert.Equal(t, scheduler.Pending, o.Phase)
			assert.Equal(t, want.kind == held, o.Held)
			if want.kind == never {
				assert.Equal(t, scheduler.Unschedulable, o.Reason)
				assert.Contains(t, o.Message, "can't run as it is")
			} else {
				assert.Empty(t, o.Reason)
			}
			assert.Contains(t, o.Message, want.message)
			if want.kind == plain {
				assert.Empty(t, o.Message)
			}
			assert.Nil(t, o.ExitCode)
		})
	}
}

func TestExitStatus(t *testing.T) {
	type status struct {
		code, signal int
		ok           bool
	}
	for text, want := range map[string]status{
		"0:0": {0, 0, true}, "3:0": {3, 0, true}, "0:9": {0, 9, true}, "255:0": {255, 0, true}, "0:125": {0, 125, true},
		"0": {0, 0, true}, "768": {3, 0, true}, "36608": {143, 0, true}, "11": {0, 11, true}, "139": {0, 11, true}, "4021": {0, 53, true},
		"": {}, "x": {}, "3:": {}, ":9": {}, "-1:0": {}, "3:0:0": {}, "256:0": {}, "70000": {}, "-1": {},
	} {
		code, signal, ok := exitStatus(text)
		assert.Equal(t, want, status{code, signal, ok}, text)
	}
}

func TestTimesAndSpans(t *testing.T) {
	assert.Equal(t, time.Date(2026, 11, 30, 21, 21, 46, 0, time.UTC), clock("2026-11-30T21:21:46"))
	for _, none := range []string{"", "Unknown", "N/A", "None", "30 Nov 21:21", "2026-13-30T21:21:46"} {
		assert.True(t, clock(none).IsZero(), none)
	}
	for text, want := range map[string]time.Duration{
		"00:10:00": 10 * time.Minute, "2-00:00:00": 48 * time.Hour, "1-02:03:04": 26*time.Hour + 3*time.Minute + 4*time.Second,
		"UNLIMITED": 0, "NONE": 0, "": 0, "10": 0, "-1-00:00:00": 0, "99999999999-00:00:00": 0,
	} {
		assert.Equal(t, want, span(text), text)
	}
	assert.Equal(t, 30*time.Second, seconds("30 sec"))
	assert.Zero(t, seconds("soon"))
}

func TestGPUs(t *testing.T) {
	type found struct {
		count int
		types []string
	}
	for text, want := range map[string]found{
		"(null)": {}, "": {}, "gpu:4": {4, nil}, "gpu:a100:4(S:0-1)": {4, []string{"a100"}},
		"gpu:a100:2(S:0,2),gpu:v100:1(S:1),nic:2": {3, []string{"a100", "v100"}}, "gpu:x": {}, "gpu": {}, "gpu:-3": {},
	} {
		count, types := gpus(text)
		assert.Equal(t, want, found{count, types}, text)
	}
}
