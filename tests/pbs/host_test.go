//go:build !live

package pbs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/fakepbs"
)

// Ranks don't hang on the order in which a node file lists the hosts.
func TestReversedNodeFile(t *testing.T) {
	w := newWorld(t, fakeWith(t, func(c *fakepbs.Config) { c.ReverseFile = true }), "")
	job := w.write("job.toml", `
nodes = 3
ranks_per_node = 2
walltime = "5m"
command = ["sh", "-c", 'echo "place $RANK $LOCAL_RANK $OPENAI4S_NODE_RANK"']
`)
	e := w.run("openai4s", "submit", "--embedded", "--wait", job)
	require.Zero(t, e.code, e.stderr)
	text := w.read(w.status(workloadID.FindString(e.stderr)).Workload.Output)
	for rank := range 6 {
		assert.Contains(t, text, fmt.Sprintf("place %d %d %d\n", rank, rank%2, rank/2))
	}
}

const untilTold = `
nodes = 3
walltime = "5m"
%s
command = ["sh", "-c", 'trap "exit 0" TERM; echo up $RANK; while :; do sleep 0.1; done']
[signal]
grace = "2s"
`

// PBS never notices the loss of a host that isn't the first. The gateway does: it names it, and the job ends.
func TestALostHostIsNoticedAndNamed(t *testing.T) {
	f := fakeWith(t, func(*fakepbs.Config) {})
	w := newWorld(t, f, `orphan_ttl = "3s"`)
	s := w.start("openai4s", "submit", "--embedded", "--wait", w.write("job.toml", fmt.Sprintf(untilTold, "")))
	id := upOnAll(w, s, 3)
	f.LoseHost(t, "n2")
	e := s.wait()
	assert.NotZero(t, e.code)
	st := w.status(id).Workload
	assert.Equal(t, "FAILED", st.Phase, e.stderr)
	assert.Contains(t, []string{"WORKER_LOST", "NODE_FAILED"}, st.Reason)
	assert.Contains(t, st.Message, "n2")
	w.gone(st.Job.ID)
}

// A lost first host has the scheduler start the job again: the next epoch, of the same job.
func TestRestartAfterTheFirstHostIsLost(t *testing.T) {
	f := fakeWith(t, func(c *fakepbs.Config) { c.NodeFailRequeue = time.Second })
	w := newWorld(t, f, `orphan_ttl = "60s"`)
	job := w.write("job.toml", `
nodes = 2
walltime = "5m"
restarts = 1
command = ["sh", "-c", 'echo up $RANK; test -e go && exit 0; trap "exit 0" TERM; while :; do sleep 0.1; done']
[signal]
grace = "2s"
`)
	s := w.start("openai4s", "submit", "--embedded", "--wait", job)
	id := upOnAll(w, s, 2)
	first := w.status(id).Workload
	w.write("go", "")
	f.LoseHost(t, "n1")
	e := s.wait()
	assert.Zero(t, e.code, e.stderr)
	st := w.status(id).Workload
	assert.Equal(t, "COMPLETED", st.Phase, st.Message)
	assert.Equal(t, 1, st.Epoch)
	assert.Equal(t, first.Job.ID, st.Job.ID, "the scheduler's own requeue keeps the id")
	record := w.gone(st.Job.ID)
	assert.Contains(t, record, "run_count = 2")
	assert.Equal(t, "0", exitStatus(record))
	assert.Equal(t, 4, strings.Count(w.read(st.Output), "up "), "the second start adds to the same file")
}

// Case 5: a submission whose answer is lost is found by its name, and nothing is submitted twice.
func TestCase05ALostAnswerMakesNoSecondJob(t *testing.T) {
	config := fakepbs.Default()
	config.LoseAnswer = true
	f := fakeWith(t, func(c *fakepbs.Config) { c.LoseAnswer = true })
	w := newWorld(t, f, "")
	s := w.start("openai4s", "submit", "--embedded", "--wait", helloIn(w))
	w.until("no job came", func() bool { return w.run("qselect", "-x").stdout != "" })
	config.LoseAnswer = false
	f.Configure(t, config)
	// The hanging qsub is ended as an operator would, or as its own limit does in the end.
	w.until("qsub doesn't hang", func() bool { return f.EndHanging(t, "qsub") > 0 })
	e := s.wait()
	assert.Zero(t, e.code, e.stderr)
	assert.Equal(t, 1, strings.Count(w.run("qselect", "-x").stdout, "\n"), "one job")
}

// Case 26: where the server forgets a job at its end, the ranks' own reports are what is believed.
func TestCase26WithoutJobHistory(t *testing.T) {
	w := newWorld(t, fakeWith(t, func(c *fakepbs.Config) { c.History = false }), "")
	e := w.run("openai4s", "submit", "--embedded", "--wait", "--nodes", "2", helloIn(w))
	require.Zero(t, e.code, e.stderr)
	assert.Equal(t, "COMPLETED", w.status(workloadID.FindString(e.stderr)).Workload.Phase)
	job := w.write("job.toml", "nodes = 2\nwalltime = \"5m\"\ncommand = [\"sh\", \"-c\", 'exit $((RANK * 4))']\n")
	e = w.run("openai4s", "submit", "--embedded", "--wait", job)
	assert.Equal(t, 4, e.code, e.stderr)
	assert.Equal(t, "FAILED", w.status(workloadID.FindString(e.stderr)).Workload.Phase)
}
