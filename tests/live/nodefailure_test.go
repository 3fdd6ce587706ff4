//go:build live

package live_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// TestNodeFailure: a node that crashes in mid-run is named and the others are stopped; with --recover a new allocation
// follows on the nodes that are left, as a new epoch.
func TestNodeFailure(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Minute // until Slurm believes that the node is gone, and once more
	own := cluster.Up(t, cluster.Options{Nodes: 3, Accounting: true, Set: []string{"SlurmdTimeout=5", killWait}})
	r := rig.New(t, rig.Options{Cluster: own})

	alice := r.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(3, "exec sleep 600", ""), "--json")
	alice.AwaitOnly(t, "ACTIVE")
	own.KillNode(t, "n2")
	w := waiting.Wait(t, patience).Doc(t)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Equal(t, "NODE_FAILED", w.Text("reason"), "%s", w)
	require.Contains(t, w.Text("message"), "n2", "%s", w)
	own.Heal(t)

	// The second start finds the marks of the first and goes through.
	bob := r.Bob(t)
	mark := filepath.Join(bob.Home, "mark")
	waiting = bob.GoSubmit(t, rig.Shell(2, `if test -e `+mark+`.$RANK; then echo "again $RANK"; exit 0; fi; : >`+mark+`.$RANK; exec sleep 600`, ""),
		"--json", "--recover", "1")
	bob.AwaitOnly(t, "ACTIVE")
	rig.Await(t, rig.Patience, "both commands to have left their marks", func() bool {
		marks, err := filepath.Glob(mark + ".*")
		return err == nil && len(marks) == 2
	})
	own.KillNode(t, "n2")
	w = waiting.Wait(t, patience).Doc(t)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Equal(t, 1, w.Int("epoch"), "%s", w)
	require.NotEmpty(t, w.List("history"), "what was lost is said: %s", w)
	out := bob.Read(t, w.Text("output"))
	require.Contains(t, out, "again 0")
	require.Contains(t, out, "again 1")
	own.Heal(t)
}

// TestNodeDeadBeforeLaunch: a node that died unnoticed before the job started on it is named, nothing runs, and the job
// is gone.
func TestNodeDeadBeforeLaunch(t *testing.T) {
	t.Parallel()
	own := cluster.Up(t, cluster.Options{Nodes: 3, Set: []string{"SlurmdTimeout=40", killWait}})
	r := rig.New(t, rig.Options{Cluster: own, Profiles: "[profiles.default]\npartition = \"main\"\nmax_nodes = 3\ndirectives = [\"--hold\"]\n"})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(3, "echo ran; exec sleep 600", ""))
	w := alice.AwaitPhase(t, id, "PENDING")
	own.KillNode(t, "n2")
	own.Slurm(t, "scontrol", "release", w.Text("job", "id"))
	rig.Await(t, 3*time.Minute, "the end", func() bool {
		w = alice.Status(t, id)
		return w.Over()
	})
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Contains(t, []string{"BOOTSTRAP_FAILED", "NODE_FAILED"}, w.Text("reason"), "%s", w)
	require.Contains(t, w.Text("message"), "n2", "%s", w)
	require.NotContains(t, alice.Read(t, w.Text("output")), "ran\n")
	rig.Await(t, rig.Patience, "the job to be gone", func() bool { return len(r.Jobs(t)) == 0 })
	own.Heal(t)
}
