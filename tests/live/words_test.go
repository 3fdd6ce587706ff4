//go:build live

package live_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
	"github.com/openai4s/hpc/tests/rig"
)

// TestSameWordsOnEveryScheduler: the same job.toml says the same on one machine, on Slurm and on PBS, but for the
// scheduler's handle.
func TestSameWordsOnEveryScheduler(t *testing.T) {
	t.Parallel()
	pbs := lab.Start(t, fakepbs.Default())
	t.Cleanup(lab.Clean)
	sites := map[string]*rig.Rig{
		"local": rig.New(t, rig.Options{Cluster: shared, Scheduler: "local", Embedded: true}),
		"slurm": rig.New(t, rig.Options{Cluster: shared, Embedded: true}),
		"pbs":   rig.New(t, rig.Options{PBS: pbs, Embedded: true}),
	}
	for name, script := range map[string]string{
		"success":        "echo hello",
		"one rank fails": "test $RANK != 1 || exit 3; sleep 600",
		"a signal":       "test $RANK != 2 || kill -USR1 $$; sleep 600",
	} {
		said := map[string]rig.Doc{}
		for system, r := range sites {
			alice := r.Alice(t)
			job := alice.Write(t, "same/job.toml", rig.Shell(4, script, "walltime = \"5m\"\nlabels = { project = \"x\" }\n[signal]\ngrace = \"2s\""))
			submitted := alice.Run(t, "submit", "--embedded", "--wait", job)
			id := regexp.MustCompile(`wl_[0-9a-f]{12}`).FindString(submitted.Stderr)
			require.NotEmpty(t, id, "%s: %s", system, submitted.Stderr)
			shown := alice.Run(t, "status", "--embedded", "--json", id)
			require.Zero(t, shown.Code, shown.Stderr)
			require.Equal(t, system, shown.Doc(t).Text("job", "system"))
			said[system] = rig.Bare(t, shown.Stdout)
		}
		require.NotEmpty(t, said["local"].Phase())
		require.Equal(t, said["local"], said["slurm"], name)
		require.Equal(t, said["local"], said["pbs"], name)
	}
}
