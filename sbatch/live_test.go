//go:build live

package sbatch

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/tests/cluster"
)

// liveJob is a rendered script on a real Slurm, with a fake agent.
type liveJob struct {
	*testing.T
	cluster   *cluster.Cluster
	user      cluster.User
	run, work string
	sub       scheduler.Submission
	id        string
}

// submitLive renders and submits as a user, out of a shell that a surrounding job left its variables in (case 13).
func submitLive(t *testing.T, c *cluster.Cluster, agent string, change func(*scheduler.Request, *scheduler.Launch)) *liveJob {
	t.Helper()
	j := &liveJob{T: t, cluster: c, user: c.User(t, cluster.Alice)}
	top := c.Folder(t, j.user)
	j.run = filepath.Join(top, `run "50%" of $HOME`)
	j.work = filepath.Join(top, `it's #1 %j work`)
	for _, dir := range []string{j.run, j.work} {
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chown(dir, j.user.UID, j.user.GID))
	}
	r, l := plainRequest("slurm"), plainLaunch()
	r.Walltime, r.Signal.BeforeWalltime = 10*time.Minute, 0
	r.Workdir, l.Dir, l.Agent = j.work, j.run, filepath.Join(j.run, "agent")
	l.JobName = "openai4s-hetjob-ba9876543210"
	change(&r, &l)
	// Its name has no blank: proctrack/linuxproc, which the cluster under test has, loses sight of such processes.
	j.put("agent", "#!/bin/sh\n"+agent)
	for _, epoch := range []string{"0", "1"} {
		j.put("gang-"+epoch+".bundle", "")
	}
	var err error
	j.sub, err = Render(r, l)
	require.NoError(t, err)
	args := append([]string{
		"SLURM_CPU_BIND=mask_cpu:0x40000000", "SLURM_MEM_PER_CPU=1", "SLURM_EXPORT_ENV=NONE", "SLURM_WAIT=1", "SLURM_LABELIO=1", "sbatch",
	}, j.sub.Args...)
	ran := j.user.Run(t, bytes.NewReader(j.sub.Script), "env", args...)
	require.Zero(t, ran.Code, ran.Stderr)
	j.id = strings.TrimSpace(ran.Stdout)
	require.Regexp(t, `^\d+$`, j.id)
	return j
}

func (j *liveJob) put(name, text string) {
	j.Helper()
	path := filepath.Join(j.run, name)
	require.NoError(j, os.WriteFile(path, []byte(text), 0o700))
	require.NoError(j, os.Chown(path, j.user.UID, j.user.GID))
}

// field is one of what scontrol shows of the job.
func (j *liveJob) field(name string) string {
	j.Helper()
	m := regexp.MustCompile(`\b` + name + `=(\S*)`).FindStringSubmatch(j.cluster.Slurm(j.T, "scontrol", "show", "job", "-o", j.id))
	require.NotNil(j, m, name)
	return m[1]
}

func (j *liveJob) until(what string, holds func() bool) {
	j.Helper()
	require.Eventually(j, holds, 3*time.Minute, 100*time.Millisecond, what)
}

// over waits for the job's end and returns its state and exit code as Slurm has them.
func (j *liveJob) over() string {
	j.Helper()
	var state string
	j.until("the job's end", func() bool {
		state = j.field("JobState")
		return slices.Contains([]string{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}, state)
	})
	return state + " " + j.field("ExitCode")
}

func (j *liveJob) lines(path string) []string {
	j.Helper()
	text, err := os.ReadFile(path)
	require.NoError(j, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// stamp is a time that the agent left in a file, in seconds.
func (j *liveJob) stamp(name string) float64 {
	j.Helper()
	s, err := strconv.ParseFloat(j.lines(filepath.Join(j.run, name))[0], 64)
	require.NoError(j, err)
	return s
}

func TestLiveSlurm(t *testing.T) {
	c := cluster.Up(t, cluster.Options{Nodes: 3, GPUs: 2, Set: []string{"KillWait=5"}})

	t.Run("ranks by blocks", func(t *testing.T) {
		j := submitLive(t, c, `
echo "$SLURM_PROCID $SLURMD_NODENAME $SLURM_CPUS_PER_TASK $OPENAI4S_EPOCH $OPENAI4S_JOB_ID [$OPENAI4S_BUNDLE] [$(pwd)] $#$SLURM_EXPORT_ENV$SLURM_MEM_PER_CPU"
[ "$SLURM_PROCID" != 0 ] || echo 7 >"${OPENAI4S_BUNDLE%/*}/exit-$OPENAI4S_EPOCH"
[ "$SLURM_PROCID" = 0 ] || exit 0
sleep 3 # with SLURM_WAIT=1 this rank would be killed
echo rank 0 was left alone
`, func(r *scheduler.Request, _ *scheduler.Launch) {
			r.Nodes, r.RanksPerNode, r.GPUsPerNode, r.MemoryPerNode, r.Output = 3, 2, 1, 100<<20, "out %w-%j-50%.txt"
		})
		require.Equal(t, "FAILED 7:0", j.over(), "the gang's code, from its file")
		require.Equal(t, "openai4s-hetjob-ba9876543210", j.field("JobName"))
		tail := " 1 0 " + j.id + " [" + j.run + "/gang-0.bundle] [" + j.work + "] 0"
		require.ElementsMatch(t, []string{
			"0 n1" + tail, "1 n1" + tail, "2 n2" + tail, "3 n2" + tail, "4 n3" + tail, "5 n3" + tail, "rank 0 was left alone",
		}, j.lines(filepath.Join(j.work, "out wl_0123456789ab-"+j.id+"-50%.txt")))
	})

	t.Run("case 58: a file a rank", func(t *testing.T) {
		j := submitLive(t, c, "echo rank $SLURM_PROCID\n", func(r *scheduler.Request, _ *scheduler.Launch) {
			r.Nodes, r.Output = 2, "50%-%j-%r.txt"
		})
		require.Equal(t, "COMPLETED 0:0", j.over())
		for _, rank := range []string{"0", "1"} {
			require.Equal(t, []string{"rank " + rank}, j.lines(filepath.Join(j.work, "50%-"+j.id+"-"+rank+".txt")))
		}
		require.FileExists(t, filepath.Join(j.run, "batch-"+j.id+".out"))
	})

	t.Run("the first failure ends the others", func(t *testing.T) {
		j := submitLive(t, c, "[ $SLURM_PROCID = 0 ] || exit 3\nexec sleep 600\n", func(r *scheduler.Request, _ *scheduler.Launch) { r.Nodes = 2 })
		require.Equal(t, "FAILED 143:0", j.over(), "srun's code, as no exit file was left")
	})

	t.Run("case 32: a requeue is the next epoch", func(t *testing.T) {
		j := submitLive(t, c, `echo "epoch $OPENAI4S_EPOCH"; [ "$OPENAI4S_EPOCH" = 1 ] || exec sleep 600`, func(r *scheduler.Request, _ *scheduler.Launch) {
			r.Restarts, r.Output = 1, "out"
		})
		out := filepath.Join(j.work, "out")
		j.until("the first epoch", func() bool {
			_, err := os.Lstat(filepath.Join(j.run, "start-0"))
			return err == nil && j.field("JobState") == "RUNNING"
		})
		c.Slurm(t, "scontrol", "requeue", j.id)
		j.until("the queue again", func() bool { return j.field("JobState") == "PENDING" })
		c.StartNow(t, j.id)
		require.Equal(t, "COMPLETED 0:0", j.over())
		require.Contains(t, j.lines(out), "epoch 1")
	})

	t.Run("case 63: the warning reaches the agents and not the script", func(t *testing.T) {
		j := submitLive(t, c, `
trap 'echo 5 >"${OPENAI4S_BUNDLE%/*}/exit-$OPENAI4S_EPOCH"; exit 0' WINCH
while :; do sleep 0.2; done
`, func(r *scheduler.Request, _ *scheduler.Launch) {
			r.Walltime, r.Signal.BeforeWalltime = 2*time.Minute, 40*time.Second
		})
		require.Equal(t, "FAILED 5:0", j.over())
	})

	t.Run("cancel reaches the agents", func(t *testing.T) {
		j := submitLive(t, c, `
trap 'date +%s.%N >"$OPENAI4S_BUNDLE.term"; echo 9 >"${OPENAI4S_BUNDLE%/*}/exit-$OPENAI4S_EPOCH"; echo told; while :; do date +%s.%N >"$OPENAI4S_BUNDLE.new"; mv "$OPENAI4S_BUNDLE.new" "$OPENAI4S_BUNDLE.last"; done' TERM
echo up
while :; do sleep 0.2; done
`, func(r *scheduler.Request, _ *scheduler.Launch) { r.Output = "out" })
		out := filepath.Join(j.work, "out")
		j.until("agent", func() bool { text, err := os.ReadFile(out); return err == nil && strings.Contains(string(text), "up") })
		require.Zero(t, j.user.Run(t, nil, "scancel", j.id).Code)
		require.Regexp(t, "^CANCELLED ", j.over())
		require.Contains(t, j.lines(out), "told")
		killed := j.stamp("gang-0.bundle.last") - j.stamp("gang-0.bundle.term")
		require.InDelta(t, 5, killed, 3, "KillWait, though srun was told to end as well")
	})
}
