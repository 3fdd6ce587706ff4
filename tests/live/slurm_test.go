//go:build live

package live_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// controller is scontrol's own record of a job, by its keys.
func controller(t *testing.T, c *cluster.Cluster, id string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for word := range strings.FieldsSeq(c.Slurm(t, "scontrol", "show", "job", "--oneliner", id)) {
		if key, value, ok := strings.Cut(word, "="); ok {
			fields[key] = value
		}
	}
	require.Equal(t, id, fields["JobId"])
	return fields
}

// accounted is sacct's record of a job, once it has an end.
func accounted(t *testing.T, c *cluster.Cluster, id string) (state, exit string) {
	t.Helper()
	rig.Await(t, rig.Patience, "sacct to know the end of job "+id, func() bool {
		out := strings.TrimSpace(c.Slurm(t, "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+id, "--format=State,ExitCode,End"))
		f := strings.Split(out, "|")
		if len(f) != 3 || f[2] == "Unknown" {
			return false
		}
		state, exit = f[0], f[1]
		return true
	})
	return state, exit
}
