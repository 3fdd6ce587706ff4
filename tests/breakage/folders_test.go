package breakage_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// TestRunRemoved: a user who removes RUN in mid-run loses what lay there, not the outcome.
func TestRunRemoved(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(3, untilGo, ""))
	awaitOutput(t, alice, id, "up", 3)
	run := alice.Status(t, id).Text("run")
	require.Equal(t, id, filepath.Base(run))
	require.NoError(t, os.RemoveAll(run))
	touch(t, alice, id, "go")
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
}

// TestRunRemovedAndRankFails: the exit code still is the workload's.
func TestRunRemovedAndRankFails(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(3, untilGo+"; test $RANK != 1 || exit 7; sleep 60", ""), "--json")
	id := alice.AwaitOnly(t, "ACTIVE")
	awaitOutput(t, alice, id, "up", 3)
	require.NoError(t, os.RemoveAll(alice.Status(t, id).Text("run")))
	touch(t, alice, id, "go")
	ran := waiting.Wait(t, rig.Patience)
	w := ran.Doc(t)
	require.Equal(t, "COMMAND_FAILED", w.Text("reason"), "%s", w)
	require.Equal(t, 7, w.Int("result", "exit_code"), "%s", w)
	require.Equal(t, 7, ran.Code)
}

// TestOutputFolderRemoved: nobody can write the output any more; the command goes on.
func TestOutputFolderRemoved(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	out := filepath.Join(alice.Home, "out")
	alice.Write(t, "out/keep", "")
	id := alice.Submit(t, rig.Shell(2, untilGo, `output = "`+out+`/%w.out"`))
	awaitOutput(t, alice, id, "up", 2)
	require.NoError(t, os.RemoveAll(out))
	require.NoError(t, os.WriteFile(filepath.Join(alice.Home, "job1", "go"), nil, 0o644)) // its work folder
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	logs := alice.Run(t, "logs", id)
	require.Contains(t, logs.Stdout, "end 0", "the gateway's copy stands in for the file: %s", logs.Stderr)
}
