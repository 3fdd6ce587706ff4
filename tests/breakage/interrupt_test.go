package breakage_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// TestInterruptWhileForming: Ctrl-C leaves a gang that still waits for a rank, and the gang becomes whole.
func TestInterruptWhileForming(t *testing.T) {
	r := newRig(t, rig.Options{Agent: holdingAgent(t, 1)})
	alice := r.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(3, "echo ran", ""))
	id := alice.AwaitOnly(t, "GRANTED")
	alice.AwaitStatus(t, id, "forming with two ranks", func(d rig.Doc) bool { return d.Int("ranks", "live") == 2 })
	waiting.Signal(t, syscall.SIGINT)
	ran := waiting.Wait(t, within)
	require.Equal(t, 130, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "openai4s wait "+id)
	require.Equal(t, 2, alice.Status(t, id).Int("ranks", "live"))
	goOn(t, r)
	alice.AwaitPhase(t, id, "COMPLETED")
	awaitOutput(t, alice, id, "ran", 3)
}

// TestInterruptWhileEnding: Ctrl-C changes nothing of what was decided.
func TestInterruptWhileEnding(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(2, `if test $RANK = 1; then until test -e go; do sleep 0.1; done; exit 4; fi; trap "echo told; sleep 2; exit 0" TERM; echo up; while :; do sleep 0.1; done`, ""))
	id := alice.AwaitOnly(t, "ACTIVE")
	awaitOutput(t, alice, id, "up", 1)
	touch(t, alice, id, "go")
	awaitOutput(t, alice, id, "told", 1)
	waiting.Signal(t, syscall.SIGINT)
	ran := waiting.Wait(t, within)
	require.Contains(t, []int{130, 4}, ran.Code, "left, or over by then: %s", ran.Stderr)
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "COMMAND_FAILED", w.Text("reason"), "%s", w)
	require.Equal(t, 4, w.Int("result", "exit_code"), "%s", w)
}

// TestInterruptOfSubmitWithoutWait: at whatever moment Ctrl-C comes, the workload is submitted, or it is told how to
// settle it, or nothing was made, or what was made is ended as never handed over.
func TestInterruptOfSubmitWithoutWait(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	known := 0
	for _, after := range []time.Duration{20, 60, 120, 200, 400} {
		submit := alice.Go(t, "submit", alice.JobFile(t, rig.Shell(1, "true", "")))
		<-time.After(after * time.Millisecond)
		_ = syscall.Kill(submit.PID(), syscall.SIGINT) // it may be through
		ran := submit.Wait(t, within)
		all := alice.List(t)
		switch len(all) - known {
		case 0:
			require.NotZero(t, ran.Code, "after %d ms: %s", after, ran.Stderr)
			continue
		case 1:
		default:
			t.Fatalf("after %d ms there are %d workloads more", after, len(all)-known)
		}
		known++
		id := all[0].Text("id")
		if !strings.Contains(ran.Stdout+ran.Stderr, id) { // the gateway's answer was on its way: nobody has anything of it
			require.NotZero(t, ran.Code, "after %d ms: %s", after, ran.Stderr)
			w := alice.AwaitEnd(t, id)
			require.Equal(t, "BOOTSTRAP_FAILED", w.Text("reason"), "after %d ms: %s", after, w)
			continue
		}
		if strings.Contains(ran.Stderr, "--resume") {
			require.Zero(t, alice.Run(t, "submit", "--resume", id).Code)
		}
		require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase(), "after %d ms", after)
	}
}
