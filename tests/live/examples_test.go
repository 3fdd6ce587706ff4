//go:build live

package live_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamples: what the README promises, on a real cluster.
func TestExamples(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice := r.Alice(t)
	for name, want := range map[string]struct {
		lines []string
		also  string // appended to the job file
	}{
		"hello":     {lines: []string{"hello from rank 0 of 4, node 0", "hello from rank 1 of 4, node 1", "hello from rank 2 of 4, node 2", "hello from rank 3 of 4, node 3"}},
		"allreduce": {lines: []string{"rank 0 of 4: the sums of 100000 elements are right", "rank 3 of 4: the sums of 100000 elements are right"}},
		"wordcount": {lines: []string{"counted by 4 ranks and checked against one"}, also: "\n[env]\nWORDCOUNT_FOLDER = \"/usr/share/common-licenses\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := alice.Copy(t, filepath.Join("..", "..", "examples", name), name)
			job := filepath.Join(dir, "job.toml")
			alice.Write(t, filepath.Join(name, "job.toml"), alice.Read(t, job)+want.also)
			ran := alice.Run(t, "submit", "--nodes", "4", "--wait", "--json", job)
			require.Zero(t, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
			w := ran.Doc(t)
			require.Equal(t, "COMPLETED", w.Phase())
			output := alice.Read(t, w.Text("output"))
			for _, line := range want.lines {
				require.Contains(t, output, line)
			}
		})
	}
	entries, err := os.ReadDir(filepath.Join("..", "..", "examples"))
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			require.Contains(t, "hello allreduce wordcount", e.Name(), "every example is run here")
		}
	}
}
