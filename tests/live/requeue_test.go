//go:build live

package live_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// untilRun says which run it is in and goes on for ever but in the last.
func untilRun(last int) string {
	return fmt.Sprintf(`run=${SLURM_RESTART_COUNT:-0}; echo "rank $RANK of run $run"; test $run = %d || exec sleep 600`, last)
}

// awaitRun waits until every rank of a run has spoken.
func awaitRun(t *testing.T, output string, run, ranks int) {
	t.Helper()
	rig.Await(t, rig.Patience, fmt.Sprintf("the words of run %d", run), func() bool {
		text, _ := os.ReadFile(output) // not there yet
		return strings.Count(string(text), fmt.Sprintf("of run %d\n", run)) == ranks
	})
}

// TestRequeuesUpToTheLimit: every requeue that restarts allow is an epoch, and the old one's ranks are gone from it;
// one more is the end, in words.
func TestRequeuesUpToTheLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice := r.Alice(t)
	for name, last := range map[string]int{"good": 2, "one too many": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := alice.Submit(t, rig.Shell(4, untilRun(last), "restarts = 2"))
			w := alice.AwaitPhase(t, id, "ACTIVE")
			job, output := w.Text("job", "id"), w.Text("output")
			for n := range min(last, 3) {
				awaitRun(t, output, n, 4)
				require.Equal(t, n, alice.Status(t, id).Int("epoch"))
				shared.Slurm(t, "scontrol", "requeue", job)
				shared.StartNow(t, job)
			}
			w = alice.AwaitEnd(t, id)
			if last == 2 {
				require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
				require.Equal(t, 2, w.Int("epoch"), "%s", w)
				require.Equal(t, 4, w.Int("ranks", "exited"), "%s", w)
				return
			}
			require.Equal(t, "FAILED", w.Phase(), "%s", w)
			require.NotEmpty(t, w.Text("message"))
			require.Contains(t, alice.Read(t, output), "started more often than its restarts allow")
			require.NotContains(t, alice.Read(t, output), "of run 3")
		})
	}
}

// TestPreemption: a job of a better partition takes the nodes; the gang comes back as the next epoch.
func TestPreemption(t *testing.T) {
	t.Parallel()
	own := cluster.Up(t, cluster.Options{Nodes: 2, Accounting: true, Set: []string{"PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", killWait}})
	own.Slurm(t, "scontrol", "update", "PartitionName=short", "PriorityTier=100")
	r := rig.New(t, rig.Options{Cluster: own, Profiles: "[profiles.default]\npartition = \"main\"\nmax_nodes = 2\n"})
	alice, bob := r.Alice(t), r.Bob(t)
	id := alice.Submit(t, rig.Shell(2, untilRun(1), "restarts = 1"))
	w := alice.AwaitPhase(t, id, "ACTIVE")
	awaitRun(t, w.Text("output"), 0, 2)
	taker := bob.Exec(t, "sbatch", "--parsable", "--partition=short", "--exclusive", "--output=/dev/null", "--wrap=exec sleep 5")
	require.Zero(t, taker.Code, taker.Stderr)
	alice.AwaitStatus(t, id, "queued again", func(d rig.Doc) bool { return d.Phase() == "PENDING" })
	rig.Await(t, rig.Patience, "the other job's end", func() bool {
		return controller(t, own, strings.TrimSpace(taker.Stdout))["JobState"] == "COMPLETED"
	})
	own.StartNow(t, w.Text("job", "id"))
	w = alice.AwaitEnd(t, id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Equal(t, 1, w.Int("epoch"), "%s", w)
}
