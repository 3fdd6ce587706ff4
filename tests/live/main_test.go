//go:build live

package live_test

import (
	"flag"
	"os"
	"testing"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// shared is the cluster of all tests that neither break it nor need another kind. It keeps whatever Slurm can keep of
// a job: script, environment and comment.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait for a scheduler: many of them at a time fit on few cores.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(rig.Main(m, func(t testing.TB) {
		shared = cluster.Up(t, cluster.Options{CPUs: 16, Accounting: true, GPUs: 4, Store: "job_comment,job_script,job_env", Set: []string{killWait}})
	}))
}

// killWait gives commands some seconds from TERM to KILL: the grace of a stop is five seconds less than Slurm's own.
const killWait = "KillWait=10"

// newRig is a rig on the shared cluster.
func newRig(t *testing.T) *rig.Rig {
	t.Helper()
	return rig.New(t, rig.Options{Cluster: shared})
}
