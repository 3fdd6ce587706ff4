//go:build live || pbsfake

package breakage_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// moody stands before sbatch or qsub and does what the file "mood" says: the job lands or doesn't, and the answer is
// good, lost, late, garbage or an error.
const moody = `#!/bin/sh
case $(cat %[1]s/mood) in
good) exec %[2]s "$@" ;;
lost) %[2]s "$@" >/dev/null; %[3]s ;;
never) %[4]s ;;
late) sleep 2; exec %[2]s "$@" ;;
hangs) %[2]s "$@" >/dev/null; exec sleep 4 ;;
garbage) %[2]s "$@" >/dev/null; echo "%%!s(nil) 42 jobs ahead of you"; exit 0 ;;
fails) %[2]s "$@"; echo "hook: permission denied" >&2; exit 1 ;;
esac
`

var moods = []string{"good", "lost", "never", "late", "hangs", "garbage", "fails"}

// defaultSchedules is how many random schedules a test run tries; O4S_SCHEDULES says another number (make soak).
const defaultSchedules = 20

// TestRandomSubmissions: whatever the submit command answers and whoever is killed in between, a workload's command runs at most
// once, and every workload reaches a true end, by --resume where nobody else can tell.
func TestRandomSubmissions(t *testing.T) {
	t.Parallel()
	seed, rounds := uint64(time.Now().UnixNano()), defaultSchedules
	if text := os.Getenv("O4S_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		seed = n
	}
	if text := os.Getenv("O4S_SCHEDULES"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		rounds = n
	}
	t.Logf("seed %d, %d schedules: O4S_SEED=%d O4S_SCHEDULES=%d repeats them", seed, rounds, seed, rounds)
	const rigs = 4
	for n := range rigs {
		t.Run(fmt.Sprintf("rig %d", n), func(t *testing.T) {
			program := moodySubmitter(t)
			r := newRig(t, rig.Options{Site: fmt.Sprintf("commands = { %s = %q }", submitter(), program)})
			s := &schedule{rig: r, alice: r.Alice(t), mood: filepath.Join(filepath.Dir(program), "mood"), random: rand.New(rand.NewPCG(seed, uint64(n)))}
			for range (rounds + rigs - 1) / rigs {
				s.round(t)
			}
		})
	}
}

func moodySubmitter(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "o4s-site-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o1777))
	path := filepath.Join(dir, submitter())
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, moody, dir, realSubmitter(), lostAnswer, noServer), 0o755))
	return path
}

type schedule struct {
	rig    *rig.Rig
	alice  *rig.User
	mood   string
	random *rand.Rand
	known  int
}

func (s *schedule) round(t *testing.T) {
	t.Helper()
	mood := moods[s.random.IntN(len(moods))]
	killCLI, killDaemon := s.random.IntN(2) == 0, s.random.IntN(2) == 0
	cliAt, daemonAt := time.Duration(s.random.IntN(3000))*time.Millisecond, time.Duration(s.random.IntN(3000))*time.Millisecond
	what := fmt.Sprintf("round %d: the submit command is %s, kill -9 of the command line: %v after %s, of the daemon: %v after %s", s.known, mood, killCLI, cliAt, killDaemon, daemonAt)
	t.Log(what)
	require.NoError(t, os.WriteFile(s.mood, []byte(mood), 0o644))
	ran := filepath.Join(s.alice.Home, fmt.Sprintf("ran%d", s.known))
	submit := s.alice.Go(t, "submit", "--idempotency-key", fmt.Sprint("round-", s.known), s.alice.JobFile(t, rig.Shell(2, `echo "$RANK ${SLURM_JOB_ID:-$PBS_JOBID}" >>`+ran, "")))
	began := time.Now()
	pause := func(until time.Duration) { <-time.After(time.Until(began.Add(until))) }
	if killDaemon && (!killCLI || daemonAt < cliAt) {
		pause(daemonAt)
		s.restart(t)
		killDaemon = false
	}
	if killCLI {
		pause(cliAt)
		_ = syscall.Kill(submit.PID(), syscall.SIGKILL) // it may be through
	}
	if killDaemon {
		pause(daemonAt)
		s.restart(t)
	}
	submit.Wait(t, rig.Patience)
	require.NoError(t, os.WriteFile(s.mood, []byte("good"), 0o644))

	all := s.alice.List(t)
	if len(all) == s.known { // nobody heard of it
		require.NoFileExists(t, ran, what)
		return
	}
	require.Len(t, all, s.known+1, what)
	s.known++
	id := all[0].Text("id")
	w := s.end(t, id)
	ends := []string{"COMPLETED ", "FAILED BOOTSTRAP_FAILED"}
	if mood == "never" {
		ends = append(ends, "FAILED BACKEND_UNAVAILABLE")
	}
	require.Contains(t, ends, w.Phase()+" "+w.Text("reason"), "%s: %s", what, w)
	text, _ := os.ReadFile(ran) // never run, perhaps
	lines := strings.Fields(string(text))
	if w.Phase() != "COMPLETED" {
		require.Empty(t, lines, "%s: %s", what, w)
		return
	}
	require.Len(t, lines, 4, "%s: each of two ranks ran once:\n%s", what, text)
	require.Equal(t, lines[1], lines[3], "%s: in one job:\n%s", what, text)
}

func (s *schedule) restart(t *testing.T) {
	t.Helper()
	s.rig.Daemon.Kill(t)
	s.rig.Daemon.Start(t)
}

// end brings a workload to its end as its owner would.
func (s *schedule) end(t *testing.T, id string) rig.Doc {
	t.Helper()
	var w rig.Doc
	rig.Await(t, 2*rig.Patience, id+" to be over", func() bool {
		w = s.alice.Status(t, id)
		if w.Phase() == "SUBMITTING" {
			ran := s.alice.Run(t, "submit", "--resume", id)
			require.Contains(t, []int{0, 81, 86}, ran.Code, ran.Stderr) // 81: nothing was kept yet, and its command may still be at it
		}
		return w.Over()
	})
	return w
}
