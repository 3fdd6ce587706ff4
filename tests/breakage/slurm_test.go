//go:build live

package breakage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// thisRank is shell text for a rank's number, as its launcher tells the agent.
const thisRank = `"$SLURM_PROCID"`

// isRank tells whether a process is the agent of a rank.
func isRank(p rig.Process, rank int) bool { return hasVariable(p, "SLURM_PROCID", rank) }

// isLauncher tells whether a process is what starts the ranks.
func isLauncher(p rig.Process) bool {
	return strings.HasPrefix(p.Command, "srun ") || strings.Contains(strings.Fields(p.Command)[0], "/srun")
}

var shared *cluster.Cluster

// saving takes its time before the command ends on TERM; the cluster's own KillWait leaves none.
const saving = ""

// defaultRounds are the random ones of a usual run.
const defaultRounds = 50

// leastGrace is what a job that asks for two seconds gets: the cluster's KillWait leaves one, about.
const leastGrace = 900 * time.Millisecond

func setUp(t testing.TB) { shared = cluster.Up(t, cluster.Options{Accounting: true}) }

func newRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	t.Parallel()
	o.Cluster = shared
	return rig.New(t, o)
}

// lostAnswer is what sbatch does where the controller falls silent, before or after it made the job.
const lostAnswer = `echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1`

const noServer = lostAnswer

func submitter() string { return "sbatch" }

func realSubmitter() string { return "sbatch" }

// jobGone tells whether the scheduler has nothing of the rig's left.
func jobGone(t testing.TB, r *rig.Rig) bool { return len(r.Jobs(t)) == 0 }
