package slurm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/tests/fakeslurm"
)

// TestCase28NoShapeThatChangesIsAsked: whatever we do, squeue and sacct are told their columns, and nobody is asked for
// JSON or YAML.
func TestCase28NoShapeThatChangesIsAsked(t *testing.T) {
	f, s, who := fake(t, fakeslurm.Options{Accounting: true, Modern: true})
	id := submit(t, s, submission()).Job
	observe(t, s, id)
	_, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "8888888"}}) // accounting is asked too
	require.NoError(t, err)
	_, err = s.Find(t.Context(), who)
	require.NoError(t, err)
	_, err = s.Facts(t.Context())
	require.NoError(t, err)
	_, err = s.Inspect(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Cancel(t.Context(), id, who))
	for _, command := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol", "sacctmgr"} {
		all := f.Ran(t, command)
		require.NotEmpty(t, all, command)
		for _, args := range all {
			line := strings.Join(args, " ")
			assert.NotContains(t, line, "json", command)
			assert.NotContains(t, line, "yaml", command)
			if command == "squeue" {
				assert.Contains(t, line, "--Format=JobID:", command)
			}
			if command == "sacct" && !strings.Contains(line, "--helpformat") {
				assert.Contains(t, line, "--format=JobIDRaw,", command)
				assert.Contains(t, line, "--delimiter=", command)
			}
		}
	}
}

// TestSameIDOnTwoClusters: an id is that of its cluster. Each cluster is asked for its own, and what one says, or doesn't,
// is no word about the other's job.
func TestSameIDOnTwoClusters(t *testing.T) {
	f, s, who := fake(t, fakeslurm.Options{Accounting: true})
	here := submit(t, s, submission()).Job
	there := scheduler.JobID{Cluster: "c3", ID: here.ID}
	f.Break(t, "squeue", fakeslurm.Fault{Times: 1}, fakeslurm.Fault{Skip: true, Code: 1, Stderr: "slurm_load_jobs error: Unable to contact slurm controller\n"})
	a, err := s.Observe(t.Context(), []scheduler.JobID{here, there})
	require.NoError(t, err)
	asked := map[bool]int{}
	for _, args := range f.Ran(t, "squeue") {
		asked[strings.Contains(strings.Join(args, " "), "--clusters=c3")]++
	}
	assert.Positive(t, asked[true])
	assert.Positive(t, asked[false])
	assert.Len(t, a.Known, 1)
	assert.Len(t, a.Unanswered, 1)
	for id := range a.Known {
		assert.NotContains(t, a.Unanswered, id, "the same number, and another job")
	}
	f.Mend(t)
	require.NoError(t, s.Cancel(t.Context(), here, who))
	require.NotEmpty(t, f.Ran(t, "scancel"))
	for _, args := range f.Ran(t, "scancel") {
		assert.NotContains(t, strings.Join(args, " "), "c3")
	}
}
