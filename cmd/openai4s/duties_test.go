package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// observed is a scheduler that knows or doesn't know job 7.
type observed struct {
	scheduler.System
	answer    scheduler.Answer
	err       error
	cancelled []scheduler.Identity
	refuses   error
}

func (o *observed) Observe(context.Context, []scheduler.JobID) (scheduler.Answer, error) {
	return o.answer, o.err
}

func (o *observed) Cancel(_ context.Context, _ scheduler.JobID, who scheduler.Identity) error {
	o.cancelled = append(o.cancelled, who)
	return o.refuses
}

func TestOwnersDuties(t *testing.T) {
	me := os.Getuid()
	running := scheduler.Observation{Phase: scheduler.Granted, Name: "n"}
	known := scheduler.Answer{Known: map[scheduler.JobID]scheduler.Observation{job7: running}}
	unanswered := scheduler.Answer{Unanswered: map[scheduler.JobID]error{job7: scheduler.ErrNoAnswer}}
	exits := []api.ExitReport{{Epoch: 1, Rank: 0, Code: 3}}
	cases := []struct {
		name   string
		wants  []string
		uid    int
		system observed
		want   *api.ObservationReport // nil: nothing is reported
		cancel bool
		says   string
	}{
		{"nothing wanted", nil, me, observed{answer: known}, nil, false, ""},
		{"somebody else's", []string{wantsObserve, wantsCancel}, me + 1, observed{answer: known}, nil, false, ""},
		{"observe", []string{wantsObserve}, me, observed{answer: known}, &api.ObservationReport{Observation: &running}, false, ""},
		{"observe: absent", []string{wantsObserve}, me, observed{}, &api.ObservationReport{Absent: true}, false, ""},
		{"observe: no answer is no absence", []string{wantsObserve}, me, observed{err: scheduler.ErrNoAnswer}, nil, false, "no answer"},
		{"observe: unanswered is no absence", []string{wantsObserve}, me, observed{answer: unanswered}, nil, false, "no answer"},
		{"reports", []string{wantsReports}, me, observed{}, &api.ObservationReport{Exits: exits, RunRead: true}, false, ""},
		{"reports go out even if the scheduler doesn't answer", []string{wantsReports, wantsObserve}, me, observed{err: scheduler.ErrNoAnswer},
			&api.ObservationReport{Exits: exits, RunRead: true}, false, "no answer"},
		{"cancel", []string{wantsCancel}, me, observed{}, nil, true, ""},
		{"cancel of what is gone", []string{wantsCancel}, me, observed{refuses: scheduler.ErrNoSuchJob}, nil, true, ""},
		{"cancel of what isn't ours", []string{wantsCancel}, me, observed{refuses: scheduler.ErrNotOurs}, nil, true, "not the one meant"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(run, "exit-1.0"), []byte(`{"epoch":1,"rank":0,"code":3}`), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(run, "exit-0.0"), []byte(`{"epoch":0,"rank":0,"code":9}`), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(run, "exit-1"), []byte("3\n"), 0o600))
			var got *api.ObservationReport
			gateway := gatewayOf(t, &got)
			w := api.Workload{ID: "wl_1", UID: c.uid, Owner: "me", JobName: "n", Epoch: 1, Size: 2, Run: run, Job: api.Job{ID: "7"}, Wants: c.wants}
			var errs bytes.Buffer
			tend(t.Context(), &app{err: &console{to: &errs}}, gateway, &c.system, w)
			require.Equal(t, c.want, got)
			if c.says == "" {
				require.Empty(t, errs.String())
			} else {
				require.Contains(t, errs.String(), c.says)
			}
			if c.cancel {
				require.Equal(t, []scheduler.Identity{{UID: me, User: "me", Name: "n"}}, c.system.cancelled)
			} else {
				require.Empty(t, c.system.cancelled)
			}
		})
	}
}

// gatewayOf is a gateway that takes one observation.
func gatewayOf(t *testing.T, got **api.ObservationReport) *api.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/workloads/{id}/observation", func(w http.ResponseWriter, r *http.Request) {
		*got = new(api.ObservationReport)
		_ = json.NewDecoder(r.Body).Decode(*got)
		_ = json.NewEncoder(w).Encode(api.Workload{ID: "wl_1"})
	})
	return serveControl(t, mux)
}
