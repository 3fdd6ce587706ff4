//go:build !live && !pbsfake

package breakage_test

import (
	"testing"
	"time"

	"github.com/openai4s/hpc/tests/rig"
)

// thisRank is shell text for a rank's number, as its launcher tells the agent.
const thisRank = `"$OPENAI4S_RANK"`

// isRank tells whether a process is the agent of a rank.
func isRank(p rig.Process, rank int) bool { return hasVariable(p, "OPENAI4S_RANK", rank) }

// isLauncher tells whether a process is what starts the ranks.
func isLauncher(rig.Process) bool { return false }

// saving takes its time before the command ends on TERM; the cluster's own KillWait leaves none.
const saving = "sleep 1; "

// defaultRounds are the random ones of a usual run.
const defaultRounds = 50

// leastGrace is what a job that asks for two seconds gets.
const leastGrace = 2 * time.Second

func setUp(testing.TB) {}

func newRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	t.Parallel()
	return rig.New(t, o)
}

// jobGone tells whether the scheduler has nothing of the rig's left: here, no process.
func jobGone(_ testing.TB, r *rig.Rig) bool {
	return len(matching(r, "local-supervise")) == 0 && len(agents(r)) == 0
}
