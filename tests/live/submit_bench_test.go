//go:build live

package live_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// BenchmarkSubmit is what `openai4s submit` takes beyond a plain sbatch of a script of the same size and shape, in the
// same run. The jobs are held, so that nothing else goes on.
func BenchmarkSubmit(b *testing.B) {
	wide := cluster.Up(b, cluster.Options{Nodes: benchNodes})
	r := rig.New(b, rig.Options{Cluster: wide, Profiles: fmt.Sprintf("[profiles.default]\npartition = \"main\"\nmax_nodes = %d\nmax_ranks_per_node = 16\ndirectives = [\"--hold\"]\n", benchNodes)})
	alice := r.Alice(b)
	for _, c := range []struct{ nodes, perNode int }{{1, 1}, {benchNodes, 16}} {
		b.Run(fmt.Sprintf("%d ranks", c.nodes*c.perNode), func(b *testing.B) {
			job := alice.JobFile(b, rig.Shell(c.nodes, "true", fmt.Sprintf("ranks_per_node = %d", c.perNode)))
			script := alice.Write(b, "plain.sh", "#!/bin/sh\n"+strings.Repeat("# padding of a script that has as much to say as ours has\n", 100))
			plainly := []string{"sbatch", "--parsable", "--hold", "--output=/dev/null", fmt.Sprintf("--nodes=%d", c.nodes), fmt.Sprintf("--ntasks-per-node=%d", c.perNode), script}
			var ours, plain time.Duration
			for b.Loop() {
				began := time.Now()
				made := alice.Exec(b, plainly[0], plainly[1:]...)
				plain += time.Since(began)
				require.Zero(b, made.Code, made.Stderr)
				began = time.Now()
				ran := alice.Run(b, "submit", job)
				ours += time.Since(began)
				require.Zero(b, ran.Code, ran.Stderr)
				require.Zero(b, alice.Run(b, "cancel", strings.TrimSpace(ran.Stdout)).Code)
				wide.Slurm(b, "scancel", strings.TrimSpace(made.Stdout))
			}
			n := float64(b.N)
			b.ReportMetric(ours.Seconds()*1000/n, "ms/submit")
			b.ReportMetric(plain.Seconds()*1000/n, "ms/plain-sbatch")
			b.ReportMetric((ours-plain).Seconds()*1000/n, "ms/beyond")
			b.ReportMetric(0, "ns/op")
		})
	}
}
