package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// A command that died before it kept anything never asked the scheduler; what isn't known is not that.
func TestNeverHandedOver(t *testing.T) {
	old := time.Now().Add(-2 * strayAfter)
	for name, c := range map[string]struct {
		created time.Time
		make    []string // folders, and a file where the name ends with .json
		want    bool
	}{
		"no RUN":                     {old, []string{"run"}, true},
		"RUN without a record":       {old, []string{"run/wl_1"}, true},
		"a record":                   {old, []string{"run/wl_1", "run/wl_1/submission.json"}, false},
		"young":                      {time.Now(), []string{"run"}, false},
		"runtime_dir isn't there":    {old, nil, false},
		"nobody knows when, no less": {time.Time{}, []string{"run"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, m := range c.make {
				if path := filepath.Join(dir, m); filepath.Ext(m) == ".json" {
					require.NoError(t, os.WriteFile(path, nil, 0o600))
				} else {
					require.NoError(t, os.MkdirAll(path, 0o700))
				}
			}
			require.Equal(t, c.want, neverHandedOver(api.Workload{ID: "wl_1", CreatedAt: c.created, Run: filepath.Join(dir, "run", "wl_1")}))
		})
	}
}

// What was never handed over is ended, and submitted by nobody; not to be told, it stays as it is.
func TestUnmadeSubmissionIsSettled(t *testing.T) {
	for name, c := range map[string]struct {
		find     func(int) ([]scheduler.JobID, error)
		outcomes []scheduler.Outcome
		exit     int
	}{
		"found all the same": {found, []scheduler.Outcome{scheduler.Existing}, 0},
		"surely not there":   {nothing, []scheduler.Outcome{scheduler.Rejected}, 0},
		"no answer":          {noAnswer, nil, exitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &scripted{find: c.find})
			require.NoError(t, makePrivate(filepath.Dir(r.run)))
			w := r.gateway.created.Workload
			w.UID = os.Getuid()
			_, err := r.resume(t.Context(), w, filepath.Dir(r.run))
			require.Equal(t, c.exit, exitOfError(err))
			require.Zero(t, r.system.submitted)
			require.Equal(t, c.outcomes, r.outcomes())

			after := tend(t.Context(), r.app, r.handover.gateway, r.system, w)
			require.Equal(t, w.ID, after.ID, "what is shown is the workload, whatever went wrong")
			require.Len(t, r.outcomes(), 2*len(c.outcomes), "a status does the same")
		})
	}
}
