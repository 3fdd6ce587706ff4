//go:build live || pbsfake

package breakage_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// What a machine without a queue and a launcher of its own doesn't have.

func TestCancelWhilePending(t *testing.T) {
	q := newQueue(t)
	alice := q.Alice(t)
	id := alice.Submit(t, rig.Shell(4, "true", ""))
	w := alice.AwaitPhase(t, id, "PENDING")
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	second := alice.Run(t, "cancel", id)
	require.Zero(t, second.Code, second.Stderr)
	requireCancelled(t, alice.AwaitEnd(t, id))
	q.requireCancelled(t, w.Text("job", "id"))
}

// TestInterruptWhilePending: the workload stays in the queue, and what waits for it is named.
func TestInterruptWhilePending(t *testing.T) {
	q := newQueue(t)
	alice := q.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(2, "true", ""))
	id := alice.AwaitOnly(t, "PENDING")
	waiting.Signal(t, syscall.SIGINT)
	ran := waiting.Wait(t, within)
	require.Equal(t, 130, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "openai4s wait "+id)
	w := alice.Status(t, id)
	require.Equal(t, "PENDING", w.Phase(), "%s", w)
	q.release(t, w.Text("job", "id"))
	alice.AwaitPhase(t, id, "COMPLETED")
}

// TestKilledLauncher: the launcher's death ends the job, with words, and leaves no rank.
func TestKilledLauncher(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, "echo up; sleep 606", ""))
	awaitOutput(t, alice, id, "up", 4)
	killed := 0
	for _, p := range r.Processes() {
		if isLauncher(p) {
			kill(t, p.PID, syscall.SIGKILL)
			killed++
		}
	}
	require.NotZero(t, killed, "%v", r.Processes())
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Equal(t, "WORKER_LOST", w.Text("reason"), "%s", w)
	rig.Await(t, within, "every process of the job to be gone", func() bool { return len(agents(r)) == 0 && len(matching(r, "sleep")) == 0 })
}
