package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

func TestPruneRuns(t *testing.T) {
	now := time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC)
	old := now.Add(-keepRun - time.Second)
	me := os.Getuid()
	cases := []struct {
		name string
		w    api.Workload
		gone bool
		kept bool // the bundles too
	}{
		{"over long ago", api.Workload{ID: "wl_1", UID: me, Phase: scheduler.Completed, EndedAt: old}, true, false},
		{"over lately", api.Workload{ID: "wl_1", UID: me, Phase: scheduler.Completed, EndedAt: now.Add(-keepRun + time.Second)}, false, false},
		{"live", api.Workload{ID: "wl_1", UID: me, Phase: scheduler.Active, EndedAt: old}, false, true},
		{"end unknown", api.Workload{ID: "wl_1", UID: me, Phase: scheduler.Failed}, false, true},
		{"somebody else's", api.Workload{ID: "wl_1", UID: me + 1, Phase: scheduler.Completed, EndedAt: old}, false, true},
		{"an id that climbs", api.Workload{ID: "../../wl_1", UID: me, Phase: scheduler.Completed, EndedAt: old}, false, true},
		{"an id that names the folder itself", api.Workload{ID: "..", UID: me, Phase: scheduler.Completed, EndedAt: old}, false, true},
		{"no id", api.Workload{UID: me, Phase: scheduler.Completed, EndedAt: old}, false, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			run := filepath.Join(top, "run")
			require.NoError(t, os.MkdirAll(filepath.Join(run, "wl_1"), 0o700))
			require.NoError(t, os.MkdirAll(filepath.Join(run, "wl_2"), 0o700))
			bundle := filepath.Join(run, "wl_1", "gang-2.bundle")
			require.NoError(t, os.WriteFile(bundle, nil, 0o600))
			var errs bytes.Buffer
			pruneRuns(&app{err: &console{to: &errs}}, run, []api.Workload{c.w}, now)
			require.Empty(t, errs.String())
			require.DirExists(t, filepath.Join(run, "wl_2"))
			if c.gone {
				require.NoDirExists(t, filepath.Join(run, "wl_1"))
			} else {
				require.DirExists(t, filepath.Join(run, "wl_1"))
			}
			if c.kept {
				require.FileExists(t, bundle)
			} else {
				require.NoFileExists(t, bundle)
			}
		})
	}
}
