package breakage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// TestMissingRankIsNamed: while the gang forms the missing rank is named with its host, and when the time is up it
// alone is blamed and the allocation is given back.
func TestMissingRankIsNamed(t *testing.T) {
	r := newRig(t, rig.Options{Agent: holdingAgent(t, 2)})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, "echo ran", "[gang]\ntimeout = \"8s\""))
	w := alice.AwaitStatus(t, id, "missing one rank", func(d rig.Doc) bool {
		return d.Int("ranks", "live") == 3 && strings.Contains(d.Text("ranks", "text"), "(n")
	})
	require.Contains(t, w.Text("ranks", "text"), "3 of 4 ranks; missing 2 (n", "%s", w)
	w = alice.AwaitEnd(t, id)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Equal(t, "WORKER_REGISTRATION_TIMEOUT", w.Text("reason"), "%s", w)
	require.Contains(t, w.Text("message"), "2 (n", "%s", w)
	require.NotContains(t, output(t, alice, id), "ran\n")
	rig.Await(t, within, "the job to be gone", func() bool { return jobGone(t, r) })
}

// TestSilentRankComesBack: an agent that is stopped and goes on loses nothing.
func TestSilentRankComesBack(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(3, "while ! test -e go; do sleep 0.1; done; echo done", ""))
	alice.AwaitPhase(t, id, "ACTIVE")
	pid := agentOf(t, r, 1)
	kill(t, pid, syscall.SIGSTOP)
	touch(t, alice, id, "go")
	awaitOutput(t, alice, id, "done", 2)
	require.Equal(t, "ACTIVE", alice.Status(t, id).Phase())
	kill(t, pid, syscall.SIGCONT)
	alice.AwaitPhase(t, id, "COMPLETED")
	awaitOutput(t, alice, id, "done", 3)
}

// touch makes a file in the job's work folder.
func touch(t *testing.T, u *rig.User, id, name string) {
	t.Helper()
	touchBeside(t, u.Status(t, id).Text("output"), name)
}

func touchBeside(t *testing.T, path, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), name), nil, 0o644))
}

// awaitFile is awaitOutput for when no daemon can be asked where the output is.
func awaitFile(t *testing.T, path, words string, times int) {
	t.Helper()
	rig.Await(t, rig.Patience, fmt.Sprintf("%q %d times in %s", words, times, path), func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Count(string(text), words) >= times
	})
}

// goOn wakes the agent that holdingAgent stopped.
func goOn(t *testing.T, r *rig.Rig) {
	t.Helper()
	rig.Await(t, rig.Patience, "the held agent", func() bool {
		for _, p := range r.Processes() {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
			if err == nil && strings.Contains(string(stat), ") T ") {
				kill(t, p.PID, syscall.SIGCONT)
				return true
			}
		}
		return false
	})
}

func TestKilledAgent(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(3, "echo up; sleep 603", ""), "--json")
	id := alice.AwaitOnly(t, "ACTIVE")
	awaitOutput(t, alice, id, "up", 3)
	kill(t, agentOf(t, r, 1), syscall.SIGKILL)
	w := waiting.Wait(t, rig.Patience).Doc(t)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Equal(t, "WORKER_LOST", w.Text("reason"), "%s", w)
	require.Contains(t, w.Text("message"), "rank 1", "%s", w)
}

func TestKilledCommand(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(3, "test $RANK = 1 && exec sleep 604; exec sleep 605", ""))
	rig.Await(t, rig.Patience, "the command of rank 1", func() bool { return len(matching(r, "sleep")) == 3 })
	for _, p := range r.Processes() {
		if strings.Contains(p.Command, "sleep 604") {
			kill(t, p.PID, syscall.SIGKILL)
		}
	}
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "COMMAND_FAILED", w.Text("reason"), "%s", w)
	require.Equal(t, 137, w.Int("result", "exit_code"), "%s", w)
	require.Equal(t, 1, w.Int("result", "rank"), "%s", w)
}

// TestKilledCommandLine: the workload goes on, and another command sees its end.
func TestKilledCommandLine(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(2, "while ! test -e go; do sleep 0.1; done", ""))
	id := alice.AwaitOnly(t, "ACTIVE")
	waiting.Signal(t, syscall.SIGKILL)
	waiting.Wait(t, within)
	touch(t, alice, id, "go")
	require.Zero(t, alice.Run(t, "wait", id).Code)
	require.Equal(t, "COMPLETED", alice.Status(t, id).Phase())
}
