package pbs_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// The same job.toml says the same on the local scheduler and on PBS, but for the scheduler's handle.
func TestSameWordsAsTheLocalScheduler(t *testing.T) {
	for name, script := range map[string]string{
		"success":        "echo hello",
		"one rank fails": "test $RANK != 1 || exit 3; sleep 600",
		"a signal":       "test $RANK != 2 || kill -USR1 $$; sleep 600",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCluster(t), "")
			job := w.write("same/job.toml", "walltime = \"5m\"\nlabels = { project = \"x\" }\ncommand = [\"sh\", \"-c\", '"+script+"']\n[signal]\ngrace = \"2s\"\n")
			local := w.write("local.toml", "[site]\nname = \"l\"\nscheduler = \"local\"\nruntime_dir = \""+filepath.Join(w.dir, "lrun")+"\"\n\n[profiles.default]\nmax_nodes = 4\nwalltime = \"10m\"\n")
			var said []rig.Doc
			for _, site := range []string{w.site, local} {
				submitted := w.run("openai4s", "submit", "--embedded", "--site", site, "--wait", "--nodes", "4", job)
				e := w.run("openai4s", "status", "--embedded", "--site", site, "--json", workloadID.FindString(submitted.stderr))
				require.Zero(t, e.code, e.stderr)
				said = append(said, rig.Bare(t, e.stdout))
			}
			require.NotEmpty(t, said[0].Phase())
			assert.Equal(t, said[1], said[0])
		})
	}
}
