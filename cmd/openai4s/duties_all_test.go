package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// questions counts what a scheduler is asked.
type questions struct {
	observed
	asked [][]scheduler.JobID
}

func (q *questions) Observe(ctx context.Context, ids []scheduler.JobID) (scheduler.Answer, error) {
	q.asked = append(q.asked, ids)
	return q.observed.Observe(ctx, ids)
}

func three(wants ...string) []api.Workload {
	var all []api.Workload
	for _, n := range []string{"7", "8", "9"} {
		all = append(all, api.Workload{ID: scheduler.WorkloadID("wl_" + n), UID: os.Getuid(), Owner: "me", JobName: "n", Job: api.Job{ID: n}, Wants: wants})
	}
	return all
}

// TestCase23OneQuestionForAllJobs: a list asks the scheduler once about every job it can tell the gateway of.
func TestCase23OneQuestionForAllJobs(t *testing.T) {
	known := map[scheduler.JobID]scheduler.Observation{{ID: "7"}: {Phase: scheduler.Granted}, {ID: "9"}: {Phase: scheduler.Pending}}
	system := &questions{observed: observed{answer: scheduler.Answer{Known: known, Unanswered: map[scheduler.JobID]error{{ID: "8"}: scheduler.ErrNoAnswer}}}}
	told := map[string]scheduler.Phase{}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/workloads/{id}/observation", func(w http.ResponseWriter, r *http.Request) {
		var report api.ObservationReport
		_ = json.NewDecoder(r.Body).Decode(&report)
		told[r.PathValue("id")] = report.Observation.Phase
		_ = json.NewEncoder(w).Encode(api.Workload{ID: scheduler.WorkloadID(r.PathValue("id")), Phase: report.Observation.Phase})
	})
	all := three(wantsObserve)
	var errs bytes.Buffer
	tendAll(t.Context(), &app{err: &console{to: &errs}}, serveControl(t, mux), system, all)
	require.Equal(t, [][]scheduler.JobID{{{ID: "7"}, {ID: "8"}, {ID: "9"}}}, system.asked)
	require.Equal(t, map[string]scheduler.Phase{"wl_7": scheduler.Granted, "wl_9": scheduler.Pending}, told)
	require.Equal(t, scheduler.Granted, all[0].Phase, "what is shown is the newest")
	require.Contains(t, errs.String(), "wl_8: asking the scheduler about job 8")
}

// TestCase24ASilentSchedulerIsNotAskedForEveryJob: a list with many jobs is as quick as one with a single job.
func TestCase24ASilentSchedulerIsNotAskedForEveryJob(t *testing.T) {
	for name, wants := range map[string][]string{"cancel": {wantsCancel}, "observe": {wantsObserve}, "both": {wantsCancel, wantsObserve}} {
		t.Run(name, func(t *testing.T) {
			system := &questions{observed: observed{err: scheduler.ErrNoAnswer, refuses: scheduler.ErrNoAnswer}}
			var errs bytes.Buffer
			all := three(wants...)
			tendAll(t.Context(), &app{err: &console{to: &errs}}, nil, system, all) // nothing is reported
			require.Equal(t, 1, len(system.asked)+len(system.cancelled))
			require.Equal(t, three(wants...), all)
			require.Equal(t, 1, strings.Count(errs.String(), scheduler.ErrNoAnswer.Error()), errs.String())
			require.Contains(t, errs.String(), "left to the next command")
		})
	}
}
