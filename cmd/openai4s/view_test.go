package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

func TestEndText(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := []struct {
		name string
		w    api.Workload
		want string
	}{
		{"completed", api.Workload{ID: "wl_1", Phase: scheduler.Completed, StartedAt: start, EndedAt: start.Add(3200 * time.Millisecond)},
			"wl_1 COMPLETED in 3.2s"},
		{"a rank's code", api.Workload{ID: "wl_1", Phase: scheduler.Failed, Reason: scheduler.CommandFailed, Result: &api.Result{ExitCode: 3, Rank: 2, Host: "node3"}},
			"wl_1 FAILED COMMAND_FAILED: rank 2 on node3 exited with 3"},
		{"a rank's signal", api.Workload{ID: "wl_1", Phase: scheduler.Failed, Reason: scheduler.CommandFailed, Result: &api.Result{ExitCode: 139, Rank: 0, Host: "n1", Signal: 11}},
			"wl_1 FAILED COMMAND_FAILED: rank 0 on n1 was ended by signal 11"},
		{"the gateway's words", api.Workload{ID: "wl_1", Phase: scheduler.Failed, Reason: scheduler.WorkerRegistrationTimeout, Message: "rank 2 on n3 never\x1b came"},
			"wl_1 FAILED WORKER_REGISTRATION_TIMEOUT: rank 2 on n3 never\uFFFD came"},
		{"cancelled", api.Workload{ID: "wl_1", Phase: scheduler.Cancelled, Reason: scheduler.UserCancelled}, "wl_1 CANCELLED USER_CANCELLED"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, endText(c.w)) })
	}
}

// TestLines runs in a bubble of its own time: a line a phase at once, steps within it once a second, nothing twice.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		v := &lines{app: &app{err: &console{to: &errs}}}
		w := api.Workload{ID: "wl_1", Phase: scheduler.Pending, Scheduler: "PENDING/Resources"}
		v.update(w)
		w.Version++
		v.update(w)
		<-time.After(5 * time.Second)
		w.Phase, w.Ranks = scheduler.Granted, api.Ranks{Live: 0, Text: "0 of 4 ranks"}
		v.update(w)
		for _, text := range []string{"1 of 4 ranks", "2 of 4 ranks", "3 of 4 ranks; missing 2 (n3)"} {
			w.Ranks.Text = text
			v.update(w)
		}
		<-time.After(5 * time.Second) // nothing more happens: the newest is told all the same
		w.Phase, w.Progress = scheduler.Active, &api.Progress{Fraction: 0.4, Phase: "encoding\x07"}
		v.update(w)
		v.update(w)
		w.Progress = &api.Progress{Fraction: 0.5}
		v.update(w) // too late to be told
		w.Phase, w.Progress = scheduler.Completed, nil
		v.update(w)
		v.close(w, true)
		<-time.After(5 * time.Second)
		require.Equal(t, `wl_1 PENDING  PENDING/Resources
wl_1 GRANTED  0 of 4 ranks
wl_1 GRANTED  3 of 4 ranks; missing 2 (n3)
wl_1 ACTIVE  40 % encoding`+"\uFFFD"+`
wl_1 COMPLETED
`, errs.String())
	})
}

func TestBarNeverFillsBeforeTheEnd(t *testing.T) {
	cases := []struct {
		name string
		w    api.Workload
		want int64
	}{
		{"queued", api.Workload{Phase: scheduler.Pending}, 0},
		{"half the ranks", api.Workload{Phase: scheduler.Granted, Size: 4, Ranks: api.Ranks{Live: 2}}, (barUnits - 1) / 2},
		{"released", api.Workload{Phase: scheduler.Active, Size: 4}, 0},
		{"progress", api.Workload{Phase: scheduler.Active, Progress: &api.Progress{Fraction: 0.5}}, (barUnits - 1) / 2},
		{"all done", api.Workload{Phase: scheduler.Active, Progress: &api.Progress{Fraction: 1}}, barUnits - 1},
		{"more than all", api.Workload{Phase: scheduler.Active, Progress: &api.Progress{Fraction: 7}}, barUnits - 1},
		{"less than nothing", api.Workload{Phase: scheduler.Active, Progress: &api.Progress{Fraction: -7}}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, barAt(c.w)) })
	}
}
