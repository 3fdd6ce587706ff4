//go:build live

package breakage_test

import (
	"testing"
	"time"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// rankVariable is what the launcher tells a rank its number in.
const rankVariable = "SLURM_PROCID"

var shared *cluster.Cluster

// saving takes its time before the command ends on TERM; the cluster's own KillWait leaves none.
const saving = ""

// leastGrace is what a job that asks for two seconds gets: the cluster's KillWait leaves one, about.
const leastGrace = 900 * time.Millisecond

func setUp(t testing.TB) { shared = cluster.Up(t, cluster.Options{Accounting: true}) }

func newRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	t.Parallel()
	o.Cluster = shared
	return rig.New(t, o)
}

// jobGone tells whether the scheduler has nothing of the rig's left.
func jobGone(t testing.TB, r *rig.Rig) bool { return len(r.Jobs(t)) == 0 }
