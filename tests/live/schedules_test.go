//go:build live

package live_test

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

// moody stands before sbatch and does what the file "mood" says: the job lands or doesn't, and the answer is good,
// lost, late, garbage or an error.
const moody = `
mood=$(cat $here/mood)
case $mood in
good) exec sbatch "$@" ;;
lost) sbatch "$@" >/dev/null; echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1 ;;
never) echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1 ;;
late) sleep 2; exec sbatch "$@" ;;
hangs) sbatch "$@" >/dev/null; exec sleep 4 ;;
garbage) sbatch "$@" >/dev/null; echo "%!s(nil) 42 jobs ahead of you"; exit 0 ;;
fails) sbatch "$@"; echo "hook: permission denied" >&2; exit 1 ;;
esac`

var moods = []string{"good", "lost", "never", "late", "hangs", "garbage", "fails"}

// defaultSchedules is how many random schedules a test run tries; O4S_SCHEDULES says another number (make soak).
const defaultSchedules = 20

// TestRandomSubmissions: whatever sbatch answers and whoever is killed in between, a workload's command runs at most
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
			t.Parallel()
			program := wrapper(t, "sbatch", moody)
			r := rig.New(t, rig.Options{Cluster: shared, Site: fmt.Sprintf("commands = { sbatch = %q }", program)})
			s := &schedule{rig: r, alice: r.Alice(t), mood: filepath.Join(filepath.Dir(program), "mood"), random: rand.New(rand.NewPCG(seed, uint64(n)))}
			for range (rounds + rigs - 1) / rigs {
				s.round(t)
			}
		})
	}
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
	what := fmt.Sprintf("round %d: sbatch is %s, kill -9 of the command line: %v after %s, of the daemon: %v after %s", s.known, mood, killCLI, cliAt, killDaemon, daemonAt)
	t.Log(what)
	require.NoError(t, os.WriteFile(s.mood, []byte(mood), 0o644))
	ran := filepath.Join(s.alice.Home, fmt.Sprintf("ran%d", s.known))
	submit := s.alice.Go(t, "submit", "--idempotency-key", fmt.Sprint("round-", s.known), s.alice.JobFile(t, rig.Shell(2, `echo "$RANK $SLURM_JOB_ID" >>`+ran, "")))
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
	require.Contains(t, []string{"COMPLETED ", "FAILED BOOTSTRAP_FAILED"}, w.Phase()+" "+w.Text("reason"), "%s: %s", what, w)
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
