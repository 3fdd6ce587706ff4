package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/fakeslurm"
)

// onSlurm is a desk on a fake Slurm, without a daemon.
func onSlurm(t *testing.T) (desk, *fakeslurm.Fake) {
	t.Helper()
	f := fakeslurm.New(t, fakeslurm.Options{Accounting: true})
	d := newDesk(t, map[string]string{"job.toml": "command = [\"true\"]\n"})
	d.site = filepath.Join(d.home, "site.toml")
	text := "[site]\nname = \"fake\"\nscheduler = \"slurm\"\nruntime_dir = \"" + d.home + "/run\"\n[site.commands]\n"
	for name, path := range f.Commands() {
		text += fmt.Sprintf("%s = %q\n", name, path)
	}
	text += "[profiles.default]\nmax_nodes = 4\n"
	require.NoError(t, os.WriteFile(d.site, []byte(text), 0o644))
	return d, f
}

// Nothing tells of the job but its name: the answer of sbatch is lost.
func TestCase01LostAnswerOfSbatch(t *testing.T) {
	d, f := onSlurm(t)
	sbatch := fakeslurm.SocketTimeout("sbatch")
	sbatch.Times = 1
	f.Break(t, "sbatch", sbatch)
	p := d.start(t, "openai4s", "submit", "--embedded", "job.toml")
	p.says(t, "the scheduler's answer was lost")
	p.says(t, ", job ")
	jobs := f.Jobs(t)
	require.Len(t, jobs, 1, "submitted twice")
	require.Contains(t, p.errs.String(), fmt.Sprintf(", job %d\n", jobs[0].ID))
	require.Len(t, f.Ran(t, "sbatch"), 1)
}

func TestRefusalOfSbatchLeavesNothing(t *testing.T) {
	d, f := onSlurm(t)
	f.Break(t, "sbatch", fakeslurm.Refuse("Batch job submission failed: Invalid account or account/partition combination specified"))
	stdout, stderr, code := d.run(t, "submit", "--embedded", "job.toml")
	require.Equal(t, exitRefused, code, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "openai4s: the scheduler refused the job: ")
	require.Contains(t, stderr, "Invalid account")
	require.Empty(t, f.Jobs(t))
	left, err := filepath.Glob(filepath.Join(d.home, "run", "wl_*"))
	require.NoError(t, err)
	require.Empty(t, left)

	stdout, stderr, code = d.run(t, "submit", "--embedded", "--json", "job.toml")
	require.Equal(t, exitRefused, code)
	require.Empty(t, stderr)
	var answer map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &answer), stdout)
	require.Equal(t, "refused", answer["error"]["code"])

	stdout, _, code = d.run(t, "list", "--embedded")
	require.Zero(t, code)
	require.Contains(t, stdout, "FAILED")
}
