package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/sbatch"
	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/local"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

func newSystem(t *testing.T) *local.System {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return local.New(filepath.Join(t.TempDir(), "jobs"), []string{self, "local-supervise"})
}

// outcome waits for a job's end.
func outcome(t *testing.T, s *local.System, id scheduler.JobID) scheduler.Observation {
	t.Helper()
	var o scheduler.Observation
	require.Eventually(t, func() bool {
		a, err := s.Observe(t.Context(), []scheduler.JobID{id})
		require.NoError(t, err)
		o = a.Known[id]
		return o.Phase.Terminal()
	}, patience, 10*time.Millisecond, "job %s doesn't end", id)
	return o
}

// TestRenderedScriptRunsHere takes the whole way from a request to the ranks' output.
func TestRenderedScriptRunsHere(t *testing.T) {
	work, run, self := t.TempDir(), filepath.Join(t.TempDir(), "it's a 100%j run"), os.Args[0]
	require.NoError(t, os.Mkdir(run, 0o700))
	agent := filepath.Join(run, "agent")
	require.NoError(t, os.WriteFile(agent, []byte(`#!/bin/sh
printf '%s\n' "rank $OPENAI4S_RANK local $OPENAI4S_LOCAL_RANK of $OPENAI4S_NODENAME/$OPENAI4S_NODE_RANK epoch $OPENAI4S_EPOCH job $OPENAI4S_JOB_ID in $(pwd)"
[ "$OPENAI4S_RANK" != 0 ] || { [ -f "$OPENAI4S_BUNDLE" ] && [ "$OPENAI4S_DEADLINE" -gt 0 ] && echo 7 >"${OPENAI4S_BUNDLE%/*}/exit-$OPENAI4S_EPOCH"; }
`), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(run, "gang-3.bundle"), nil, 0o600))
	sub, err := sbatch.Render(scheduler.Request{
		System: "local", Name: "two", Nodes: 2, RanksPerNode: 2, Walltime: time.Minute, Workdir: work, Output: "out/%w-%j.txt",
	}, scheduler.Launch{
		Workload: "wl_0123456789ab", Allocation: "alloc_0123456789ab", JobName: "openai4s-two-0123456789ab",
		Dir: run, Agent: agent, Launcher: []string{self, "local-launch"}, FirstEpoch: 3,
	})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(work, "out"), 0o700))

	s := newSystem(t)
	receipt, err := s.Submit(t.Context(), sub)
	require.NoError(t, err)
	require.Equal(t, scheduler.Receipt{Outcome: scheduler.Created, Job: scheduler.JobID{ID: "1"}}, receipt)
	o := outcome(t, s, receipt.Job)
	out, err := os.ReadFile(filepath.Join(work, "out", "wl_0123456789ab-1.txt"))
	require.NoError(t, err)
	require.Equal(t, 7, *o.ExitCode, "the gang's code, from its file; output: %s", out)
	require.Equal(t, scheduler.Failed, o.Phase)
	require.Equal(t, []string{"node1", "node2"}, o.Hosts)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.ElementsMatch(t, []string{
		"rank 0 local 0 of node1/0 epoch 3 job 1 in " + work,
		"rank 1 local 1 of node1/0 epoch 3 job 1 in " + work,
		"rank 2 local 0 of node2/1 epoch 3 job 1 in " + work,
		"rank 3 local 1 of node2/1 epoch 3 job 1 in " + work,
	}, lines)
}
