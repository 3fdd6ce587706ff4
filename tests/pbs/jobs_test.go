package pbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func hello(t *testing.T) string {
	path, err := filepath.Abs("../../examples/hello/job.toml")
	require.NoError(t, err)
	return path
}

// helloIn copies the example, so that its output is written below the test's folder.
func helloIn(w *world) string {
	return w.write("hello/job.toml", w.read(hello(w.t)))
}

var greeting = regexp.MustCompile(`(?m)^hello from rank (\d+) of (\d+), node (\d+), on `)

func TestHelloOnFourHosts(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	e := w.run("openai4s", "submit", "--embedded", "--wait", "--nodes", "4", helloIn(w))
	require.Zero(t, e.code, e.stderr)
	id := workloadID.FindString(e.stderr)
	s := w.status(id).Workload
	assert.Equal(t, "COMPLETED", s.Phase)
	assert.Equal(t, "pbs", s.Job.System)
	text := w.read(s.Output)
	var ranks []string
	for _, m := range greeting.FindAllStringSubmatch(text, -1) {
		ranks = append(ranks, m[1]+"/"+m[2]+"@"+m[3])
	}
	sort.Strings(ranks)
	assert.Equal(t, []string{"0/4@0", "1/4@1", "2/4@2", "3/4@3"}, ranks, text)
	record := w.gone(s.Job.ID)
	assert.Equal(t, "0", exitStatus(record), "the job's own exit code agrees")
	assert.Contains(t, record, "Resource_List.place = scatter")
	info, err := os.Stat(s.Output)
	require.NoError(t, err)
	assert.Equal(t, "-rw-r--r--", info.Mode().String())
}

// Ranks of a node share it, and every rank knows its place.
func TestTwoRanksANode(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("two/job.toml", `
nodes = 4
ranks_per_node = 2
walltime = "5m"
output = "out-%j.txt"
command = ["sh", "-c", 'echo "place $RANK $LOCAL_RANK $OPENAI4S_NODE_RANK $WORLD_SIZE $OPENAI4S_HOSTS"; sed "s/^/host $RANK /" "$OPENAI4S_HOSTFILE"']
`)
	e := w.run("openai4s", "submit", "--embedded", "--wait", job)
	require.Zero(t, e.code, e.stderr)
	s := w.status(workloadID.FindString(e.stderr)).Workload
	assert.Equal(t, filepath.Join(w.dir, "two", "out-"+s.Job.ID+".txt"), s.Output, "the scheduler's id is in the name")
	text := w.read(s.Output)
	for rank := range 8 {
		assert.Regexp(t, fmt.Sprintf(`(?m)^place %d %d %d 8 \S+$`, rank, rank%2, rank/2), text)
		assert.Len(t, regexp.MustCompile(fmt.Sprintf(`(?m)^host %d \S+$`, rank)).FindAllString(text, -1), 4)
	}
	left, err := filepath.Glob(filepath.Join(w.dir, "two", ".batch-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "the name that -o had is gone")
}

func TestCase58AFileForEachRankOnRequest(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("job.toml", `
nodes = 2
walltime = "5m"
output = "logs/%j/rank-%r.txt"
command = ["sh", "-c", 'echo "only $RANK"']
`)
	e := w.run("openai4s", "submit", "--embedded", "--wait", job)
	require.Zero(t, e.code, e.stderr)
	s := w.status(workloadID.FindString(e.stderr)).Workload
	for rank := range 2 {
		assert.Equal(t, fmt.Sprintf("only %d\n", rank), w.read(filepath.Join(w.dir, "logs", s.Job.ID, fmt.Sprintf("rank-%d.txt", rank))))
	}
}

// One rank's end is the workload's and the job's, and ends the others.
func TestOneRankFails(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("job.toml", `
nodes = 4
walltime = "5m"
command = ["sh", "-c", 'test $RANK = 2 && exit 3; sleep 600']
[signal]
grace = "2s"
`)
	e := w.run("openai4s", "submit", "--embedded", "--wait", job)
	assert.Equal(t, 3, e.code, e.stderr)
	s := w.status(workloadID.FindString(e.stderr)).Workload
	assert.Equal(t, "FAILED", s.Phase)
	assert.Equal(t, "COMMAND_FAILED", s.Reason)
	require.NotNil(t, s.Result)
	assert.Equal(t, 3, s.Result.ExitCode)
	assert.Equal(t, 2, s.Result.Rank)
	assert.Equal(t, "3", exitStatus(w.gone(s.Job.ID)), "the job's own exit code agrees")
}

// Nothing of a cancelled job is left, what called setsid included, which qdel alone leaves behind.
func TestCancel(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("job.toml", `
nodes = 2
walltime = "5m"
command = ["sh", "-c", 'setsid sh -c "while :; do date +%s%N >child-$RANK; sleep 0.2; done" & trap "echo term $RANK; exit 0" TERM; echo up $RANK; while :; do sleep 0.1; done']
[signal]
grace = "4s"
`)
	s := w.start("openai4s", "submit", "--embedded", "--wait", job)
	id := s.id()
	var output string
	w.until("the ranks don't run", func() bool {
		output = w.status(id).Workload.Output
		text, _ := os.ReadFile(output)
		return strings.Count(string(text), "up ") == 2
	})
	c := w.run("openai4s", "cancel", "--embedded", id)
	require.Zero(t, c.code, c.stderr)
	assert.Equal(t, 20, s.wait().code, s.said())
	st := w.status(id).Workload
	assert.Equal(t, "CANCELLED", st.Phase)
	assert.Equal(t, "USER_CANCELLED", st.Reason)
	w.gone(st.Job.ID)
	text := w.read(output)
	assert.Contains(t, text, "term 0")
	assert.Contains(t, text, "term 1")
	w.silent("child-0", "child-1")
}

// Case 63: the command is warned before the walltime and can save what it has.
func TestCase63WarnedBeforeTheWalltime(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("job.toml", `
nodes = 2
walltime = "25s"
command = ["sh", "-c", 'trap "echo saved $RANK >saved-$RANK; exit 0" TERM; while :; do sleep 0.1; done']
[signal]
before_walltime = "15s"
grace = "3s"
`)
	e := w.run("openai4s", "submit", "--embedded", "--wait", job)
	s := w.status(workloadID.FindString(e.stderr)).Workload
	assert.Equal(t, "TIME_LIMIT_EXCEEDED", s.Reason, "%s\n%s", s.Message, e.stderr)
	for rank := range 2 {
		assert.Equal(t, fmt.Sprintf("saved %d\n", rank), w.read(filepath.Join(w.dir, fmt.Sprintf("saved-%d", rank))))
	}
	assert.NotEqual(t, "-29", exitStatus(w.gone(s.Job.ID)), "it ended before the scheduler had to")
}

// Case 31: a job that its walltime ended isn't successful.
func TestCase31EndedByTheWalltime(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("job.toml", `
nodes = 2
walltime = "8s"
command = ["sh", "-c", 'trap "exit 0" TERM; while :; do sleep 0.1; done']
[signal]
before_walltime = "0s"
grace = "2s"
`)
	e := w.run("openai4s", "submit", "--embedded", "--wait", job)
	assert.NotZero(t, e.code)
	s := w.status(workloadID.FindString(e.stderr)).Workload
	assert.Equal(t, "FAILED", s.Phase)
	assert.Equal(t, "TIME_LIMIT_EXCEEDED", s.Reason, "%s\n%s", s.Message, e.stderr)
	assert.Equal(t, "-29", exitStatus(w.gone(s.Job.ID)))
}

func TestRefusedIsToldWithTheSchedulersWords(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	w.write("site.toml", strings.Replace(w.read(w.site), "[profiles.default]", "[profiles.default]\nselect_extra = \"nosuchresource=1\"", 1))
	e := w.run("openai4s", "submit", "--embedded", "--wait", helloIn(w))
	assert.Equal(t, 82, e.code, e.stderr)
	assert.Contains(t, e.stderr, "Unknown resource")
	assert.Contains(t, e.stderr, "select_extra")
}
