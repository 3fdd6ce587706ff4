package breakage_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

func requireCancelled(t *testing.T, w rig.Doc) {
	t.Helper()
	require.Equal(t, "CANCELLED", w.Phase(), "%s", w)
	require.Equal(t, "USER_CANCELLED", w.Text("reason"), "%s", w)
}

func TestCancelWhileForming(t *testing.T) {
	r := newRig(t, rig.Options{Agent: holdingAgent(t, 2)})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, "sleep 600", ""))
	alice.AwaitStatus(t, id, "forming with three ranks", func(d rig.Doc) bool { return d.Int("ranks", "live") == 3 })
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	requireCancelled(t, alice.AwaitEnd(t, id))
	require.True(t, jobGone(t, r), "%v", r.Processes())
}

func TestCancelWhileRunning(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, "echo up; sleep 600", ""))
	awaitOutput(t, alice, id, "up", 4)
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	second := alice.Run(t, "cancel", id)
	require.Zero(t, second.Code, second.Stderr)
	requireCancelled(t, alice.AwaitEnd(t, id))
	require.Equal(t, 20, alice.Run(t, "wait", id).Code)

	over := alice.Run(t, "cancel", id)
	require.Zero(t, over.Code, over.Stderr)
	require.Contains(t, over.Stdout, "was over already")
	requireCancelled(t, alice.Status(t, id))
}

// TestCancelWhileEnding: one rank has failed and the others are being stopped; the first decision stays.
func TestCancelWhileEnding(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(2, `if test $RANK = 1; then exit 4; fi; trap "echo told; sleep 3; exit 0" TERM; sleep 600 & wait`, ""))
	awaitOutput(t, alice, id, "told", 1)
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Equal(t, "COMMAND_FAILED", w.Text("reason"), "%s", w)
	require.Equal(t, 4, w.Int("result", "exit_code"), "%s", w)
}

// TestInterruptDetaches: Ctrl-C on --wait with a daemon leaves the workload alone and names what waits for it.
func TestInterruptDetaches(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(2, `while ! test -e go; do sleep 0.1; done`, ""))
	id := alice.AwaitOnly(t, "ACTIVE")
	waiting.Signal(t, syscall.SIGINT)
	ran := waiting.Wait(t, within)
	require.Equal(t, 130, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "openai4s wait "+id)
	require.Equal(t, "ACTIVE", alice.Status(t, id).Phase())
	touch(t, alice, id, "go")
	alice.AwaitPhase(t, id, "COMPLETED")
}

// TestStopTakesTheWholeTree: what ignores TERM gets KILL after grace, and a child in a session of its own goes too.
func TestStopTakesTheWholeTree(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(2, `trap "" TERM; setsid sleep 601 & sh -c "trap '' TERM; sleep 602 & wait" & echo up; while :; do sleep 1; done`, "[signal]\ngrace = \"2s\""))
	awaitOutput(t, alice, id, "up", 2)
	began := time.Now()
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	rig.Await(t, within, "every process of the command to be gone", func() bool { return len(matching(r, "sleep")) == 0 })
	require.Greater(t, time.Since(began), leastGrace, "KILL came before grace was over")
	requireCancelled(t, alice.AwaitEnd(t, id))
}

// TestTermComesFirst: a command that ends on TERM has the time that grace gives.
func TestTermComesFirst(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(2, `trap "`+saving+`echo saved; exit 0" TERM; echo up; sleep 600 & wait`, "[signal]\ngrace = \"20s\""))
	awaitOutput(t, alice, id, "up", 2)
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	requireCancelled(t, alice.AwaitEnd(t, id))
	awaitOutput(t, alice, id, "saved", 2)
}
