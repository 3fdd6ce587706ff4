//go:build live

package live_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// benchNodes is the size of the benchmark's cluster: as many slurmd as one machine can bear.
const benchNodes = 64

// BenchmarkRelease measures, on 64 nodes of this machine, the time from `sbatch` to the release of the gang beside that
// of a plain `srun hostname` over as many tasks, from its `sbatch` to its end, in the same run:
//
//	make bench-live
func BenchmarkRelease(b *testing.B) {
	wide := cluster.Up(b, cluster.Options{Nodes: benchNodes})
	r := rig.New(b, rig.Options{Cluster: wide, Profiles: fmt.Sprintf("[profiles.default]\npartition = \"main\"\nmax_nodes = %d\nmax_ranks_per_node = 4\n", benchNodes)})
	alice := r.Alice(b)
	for _, perNode := range []int{1, 4} {
		ranks := benchNodes * perNode
		b.Run(strconv.Itoa(ranks)+" ranks", func(b *testing.B) {
			var ours, plain time.Duration
			for b.Loop() {
				plain += plainSrun(b, alice, perNode)
				w := released(b, alice, perNode)
				ours += moment(b, w, "started_at").Sub(moment(b, w, "submitted_at"))
			}
			n := float64(b.N)
			b.ReportMetric(ours.Seconds()/n, "s/sbatch-to-released")
			b.ReportMetric(plain.Seconds()/n, "s/plain-srun-hostname")
			b.ReportMetric(ours.Seconds()/plain.Seconds(), "ratio")
			b.ReportMetric(0, "ns/op") // what a round takes as a whole says nothing
		})
	}
}

// plainSrun is the time from sbatch's answer to the end of a job that does nothing but `srun hostname`.
func plainSrun(b *testing.B, alice *rig.User, perNode int) time.Duration {
	b.Helper()
	out := alice.Write(b, "plain.out", "")
	ran := alice.Exec(b, "sh", "-c", fmt.Sprintf(`sbatch --parsable --nodes=%d --ntasks-per-node=%d --output=%s <<'END'
#!/bin/sh
srun --export=ALL hostname >/dev/null && date +%%s.%%N
END
date +%%s.%%N`, benchNodes, perNode, out))
	require.Zero(b, ran.Code, ran.Stderr)
	var id int
	var submitted, ended float64
	_, err := fmt.Sscan(ran.Stdout, &id, &submitted)
	require.NoError(b, err, ran.Stdout)
	rig.Await(b, 5*time.Minute, "srun hostname to end", func() bool {
		n, _ := fmt.Sscan(alice.Read(b, out), &ended) // nothing there yet
		return n == 1
	})
	return time.Duration((ended - submitted) * float64(time.Second))
}

// released runs a gang to its end and returns its document.
func released(b *testing.B, alice *rig.User, perNode int) rig.Doc {
	b.Helper()
	ran := alice.GoSubmit(b, rig.Shell(benchNodes, "true", fmt.Sprintf("ranks_per_node = %d", perNode)), "--json").Wait(b, 5*time.Minute)
	require.Zero(b, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
	return ran.Doc(b)
}

func moment(b *testing.B, w rig.Doc, name string) time.Time {
	b.Helper()
	at, err := time.Parse(time.RFC3339Nano, w.Text(name))
	require.NoError(b, err)
	return at
}
