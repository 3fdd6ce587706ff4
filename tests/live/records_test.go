//go:build live

package live_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// record is one end of a job, as everybody tells it.
type record struct {
	name   string
	script string
	more   string
	cancel bool

	phase, reason string // ours
	code          int    // of the workload's result; -1: none is promised
	exit          int    // of submit --wait
	state         string // Slurm's
	slurmExit     string // scontrol's; sacct before 26.05 subtracts 128 from codes above it
	sacctExit     string
}

var records = []record{
	{name: "success", script: "exit 0", phase: "COMPLETED", state: "COMPLETED", slurmExit: "0:0", sacctExit: "0:0"},
	{name: "exit 3 on one rank", script: "test $OPENAI4S_RANK != 2 || exit 3; exec sleep 600",
		phase: "FAILED", reason: "COMMAND_FAILED", code: 3, exit: 3, state: "FAILED", slurmExit: "3:0", sacctExit: "3:0"},
	{name: "exit 3 on all ranks", script: "exit 3",
		phase: "FAILED", reason: "COMMAND_FAILED", code: 3, exit: 3, state: "FAILED", slurmExit: "3:0", sacctExit: "3:0"},
	{name: "signal", script: "test $OPENAI4S_RANK != 1 || kill -USR1 $$; exec sleep 600",
		phase: "FAILED", reason: "COMMAND_FAILED", code: 138, exit: 138, state: "FAILED", slurmExit: "138:0", sacctExit: "10:0"},
	// A command takes a moment to end, so that Slurm's cancel comes before the ranks have left by themselves.
	{name: "cancel", script: "trap 'sleep 2; exit 0' TERM; sleep 600 & wait; exit 0", cancel: true,
		phase: "CANCELLED", reason: "USER_CANCELLED", code: -1, exit: 20, state: "CANCELLED"},
	// Accounting keeps no exit code of a job that ran out of time.
	// The ranks are over before the owner's scancel arrives: the last one stays until Slurm itself ends the job.
	{name: "cancel of what ends at once", script: "exec sleep 600", cancel: true,
		phase: "CANCELLED", reason: "USER_CANCELLED", code: -1, exit: 20, state: "CANCELLED"},
	{name: "timeout", script: "exec sleep 600", more: "walltime = \"1m\"\n[signal]\nbefore_walltime = \"0s\"",
		phase: "FAILED", reason: "TIME_LIMIT_EXCEEDED", code: 143, exit: 143, state: "TIMEOUT", slurmExit: "143:0", sacctExit: "0:0"},
	// The warning comes in time for the command's own end, and Slurm takes what the script says of it.
	// Slurm looks every 30 s and warns up to as much too early: a warning before the step is there would reach nobody.
	{name: "timeout that was warned of", script: "exec sleep 600", more: "walltime = \"2m\"\n[signal]\nbefore_walltime = \"70s\"",
		phase: "FAILED", reason: "TIME_LIMIT_EXCEEDED", code: 143, exit: 143, state: "FAILED", slurmExit: "143:0", sacctExit: "15:0"},
}

// TestRecordsAgree: Slurm's own records say the same of a job as we do, in state and exit code.
func TestRecordsAgree(t *testing.T) {
	t.Parallel()
	for _, c := range records {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, shared, true)
		})
	}
}

// TestRecordsAgreeWithoutAccounting: the queue alone is enough.
func TestRecordsAgreeWithoutAccounting(t *testing.T) {
	t.Parallel()
	plain := cluster.Up(t, cluster.Options{Set: []string{killWait}})
	t.Run("all", func(t *testing.T) {
		for _, c := range records {
			if strings.HasPrefix(c.name, "timeout") {
				continue // they take a minute, and the difference is in what is asked, not in what is asked about
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.check(t, plain, false)
			})
		}
	})
}

func (c record) check(t *testing.T, on *cluster.Cluster, accounting bool) {
	r := rig.New(t, rig.Options{Cluster: on})
	alice := r.Alice(t)
	waiting := alice.GoSubmit(t, rig.Shell(4, c.script, c.more), "--json")
	if c.cancel {
		id := alice.AwaitOnly(t, "ACTIVE")
		require.Zero(t, alice.Run(t, "cancel", id).Code)
	}
	ran := waiting.Wait(t, 2*rig.Patience)
	w := ran.Doc(t)
	require.Equal(t, c.exit, ran.Code, "%s", w)
	require.Equal(t, c.phase, w.Phase(), "%s", w)
	require.Equal(t, c.reason, w.Text("reason"), "%s", w)
	if c.code >= 0 {
		require.Equal(t, c.code, w.Int("result", "exit_code"), "%s", w)
	}
	id := w.Text("job", "id")
	theirs := controller(t, on, id)
	require.Equal(t, c.state, theirs["JobState"])
	if c.slurmExit != "" {
		require.Equal(t, c.slurmExit, theirs["ExitCode"])
	}
	if accounting {
		state, exit := accounted(t, on, id)
		require.Contains(t, state, c.state) // "CANCELLED by 1001"
		if c.sacctExit != "" {
			require.Contains(t, []string{c.sacctExit, c.slurmExit}, exit)
		}
	}
}
