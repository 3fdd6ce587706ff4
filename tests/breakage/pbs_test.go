//go:build pbsfake

package breakage_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
	"github.com/openai4s/hpc/tests/rig"
)

// thisRank is shell text for a rank's number, as its launcher tells the agent.
const thisRank = `"$(echo " $*" | sed -n 's/.* --rank \([0-9]*\).*/\1/p')"`

// isRank tells whether a process is the agent of a rank.
func isRank(p rig.Process, rank int) bool {
	return strings.Contains(p.Command+" ", fmt.Sprintf(" --rank %d ", rank))
}

// isLauncher tells whether a process is what starts the ranks.
func isLauncher(p rig.Process) bool { return launcher.MatchString(p.Command) }

var launcher = regexp.MustCompile(`^\S*openai4s-agent launch `)

// saving takes its time before the command ends on TERM.
const saving = "sleep 1; "

// defaultRounds are the random ones of a usual run.
const defaultRounds = 20

// leastGrace is what a job that asks for two seconds gets.
const leastGrace = 2 * time.Second

var shared *lab.Lab

// roomy is a cluster on which many jobs of four hosts run at a time.
func roomy() fakepbs.Config {
	c := fakepbs.Default()
	c.CPUs = 64
	return c
}

func setUp(t testing.TB) {
	t.Cleanup(lab.Clean)
	shared = lab.Start(t, roomy())
}

func newRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	t.Parallel()
	if o.PBS == nil {
		o.PBS = shared
	}
	return rig.New(t, o)
}

// lostAnswer is what qsub does where the server hangs up after it made the job.
const lostAnswer = `echo "qsub: End of File" >&2; exit 1`

// noServer is what it does where the server swallows packets: surely no job.
const noServer = `echo "Connection timed out" >&2; echo "qsub: cannot connect to server pbshead (errno=15010)" >&2; exit 162`

func submitter() string { return "qsub" }

func realSubmitter() string { return filepath.Join(shared.Bin, "qsub") }

// jobGone tells whether the scheduler has nothing of the rig's left.
func jobGone(t testing.TB, r *rig.Rig) bool { return len(r.Jobs(t)) == 0 }
