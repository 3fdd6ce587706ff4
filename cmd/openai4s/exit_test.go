package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

func TestExitCodes(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want int
		code string
	}{
		{"no error", nil, 0, ""},
		{"the command's own", &ended{7}, 7, ""},
		{"the command's own beside another error", errors.Join(&ended{7}, errors.New("x")), 7, ""},
		{"usage", usage("x"), 80, "usage"},
		{"bad file", badFile(errors.New("x")), 81, "bad_file"},
		{"bad file, wrapped", fmt.Errorf("doing: %w", badFile(errors.New("x"))), 81, "bad_file"},
		{"the scheduler refused", rejected(scheduler.Receipt{Reason: scheduler.BackendRejected}), 82, "refused"},
		{"the scheduler doesn't answer", rejected(scheduler.Receipt{Reason: scheduler.BackendUnavailable}), 83, "unavailable"},
		{"no daemon", fmt.Errorf("asking: %w", api.ErrNobody), 83, "unavailable"},
		{"no answer of the scheduler", fmt.Errorf("asking: %w", scheduler.ErrNoAnswer), 83, "unavailable"},
		{"not allowed", &api.Error{Status: 403, Code: "not_allowed"}, 84, "not_allowed"},
		{"limit of live workloads", &api.Error{Status: 429, Code: "limit"}, 84, "not_allowed"},
		{"somebody else's job", fmt.Errorf("cancelling: %w", scheduler.ErrNotOurs), 84, "not_allowed"},
		{"no such workload", &api.Error{Status: 404, Code: "not_found"}, 85, "not_found"},
		{"too wide for the daemon's site", &api.Error{Status: 400, Code: "too_wide"}, 81, "bad_file"},
		{"unknown submission", unknown("wl_1", errors.New("x")), 86, "submission_unknown"},
		{"interrupted", fmt.Errorf("waiting: %w", errInterrupted), 130, "interrupted"},
		{"cancelled context", context.Canceled, 130, "interrupted"},
		{"anything else", errors.New("x"), 1, "failed"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			a := &app{out: &out, err: &console{to: &errs}, json: true}
			require.Equal(t, c.want, a.finish(c.err))
			require.Empty(t, errs.String())
			if c.code == "" {
				require.Empty(t, out.String())
				return
			}
			require.Contains(t, out.String(), fmt.Sprintf(`"code": %q`, c.code))
			require.Contains(t, out.String(), fmt.Sprintf(`"exit_code": %d`, c.want))
		})
	}
}

func TestExitCodeOfWorkload(t *testing.T) {
	cases := []struct {
		name string
		w    api.Workload
		want int
	}{
		{"completed", api.Workload{Phase: scheduler.Completed}, 0},
		{"the command's", api.Workload{Phase: scheduler.Failed, Result: &api.Result{ExitCode: 3}}, 3},
		{"a signal's", api.Workload{Phase: scheduler.Failed, Result: &api.Result{ExitCode: 137, Signal: 9}}, 137},
		{"failed without a code", api.Workload{Phase: scheduler.Failed}, 1},
		{"failed with code 0", api.Workload{Phase: scheduler.Failed, Result: &api.Result{}}, 1},
		{"a code that is none", api.Workload{Phase: scheduler.Failed, Result: &api.Result{ExitCode: 256}}, 1},
		{"cancelled", api.Workload{Phase: scheduler.Cancelled, Result: &api.Result{ExitCode: 143}}, 20},
		{"lost", api.Workload{Phase: scheduler.Lost}, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, exitOf(c.w)) })
	}
}

func TestErrorsAreNeutralised(t *testing.T) {
	var out, errs bytes.Buffer
	a := &app{out: &out, err: &console{to: &errs}}
	code := a.finish(rejected(scheduler.Receipt{Text: "no\x1b[2J such\r\naccount", Hint: "ask\x07"}))
	require.Equal(t, exitRefused, code)
	require.Empty(t, out.String())
	require.Equal(t, "openai4s: the scheduler refused the job: no\uFFFD[2J such\uFFFD account\nhint: ask\uFFFD\n", errs.String())
}
