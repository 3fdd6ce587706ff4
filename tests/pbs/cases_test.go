package pbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// done runs a job to its good end and returns its record.
func (w *world) done(args ...string) (record string) {
	w.t.Helper()
	e := w.run("openai4s", append([]string{"submit", "--embedded", "--wait"}, args...)...)
	require.Zero(w.t, e.code, e.stderr)
	return w.gone(w.status(workloadID.FindString(e.stderr)).Workload.Job.ID)
}

// Case 16: a job's name is one that PBS takes, whatever the user's is.
func TestCase16AnyNameIsTaken(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("job.toml", "name = \"7%  a.b: "+strings.Repeat("long", 25)+"\"\nwalltime = \"5m\"\ncommand = [\"true\"]\n")
	record := w.done(job)
	assert.Regexp(t, `^[A-Za-z][A-Za-z0-9_.+-]{11,63}$`, attribute(record, "Job_Name"))
}

// Case 17: ranks that want nodes get nodes, also where all would fit on one. Case 19: 65 minutes are 01:05:00.
func TestCase17And19PlaceAndWalltime(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	w.write("site.toml", strings.Replace(w.read(w.site), `walltime = "10m"`, `walltime = "65m"`, 1))
	record := w.done("--nodes", "2", w.write("job.toml", "command = [\"true\"]\n"))
	assert.Equal(t, "scatter", attribute(record, "Resource_List.place"))
	assert.Equal(t, "01:05:00", attribute(record, "Resource_List.walltime"))
	var hosts []string
	for part := range strings.SplitSeq(attribute(record, "exec_host"), "+") {
		host, _, _ := strings.Cut(part, "/")
		hosts = append(hosts, host)
	}
	require.Len(t, hosts, 2)
	assert.NotEqual(t, hosts[0], hosts[1])
}

// Case 18: a second select, of which the first would win, is refused before anything is submitted.
func TestCase18ASecondSelectIsRefused(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	w.write("site.toml", w.read(w.site)+"directives = [\"-l select=1:ncpus=2\"]\n")
	e := w.run("openai4s", "submit", "--embedded", w.write("job.toml", "command = [\"true\"]\n"))
	assert.Equal(t, 81, e.code)
	assert.Contains(t, e.stderr, "select")
	assert.NoDirExists(t, filepath.Join(w.dir, "run"))
}

// Case 64: what qdel sends reaches the ranks and their commands' whole groups; what ignores TERM is killed after grace.
func TestCase64TermReachesRanksAndGroups(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("job.toml", `
nodes = 2
walltime = "5m"
command = ["sh", "-c", '''sh -c 'trap "echo child $RANK" TERM; while :; do date +%s%N >child-$RANK; sleep 0.2; done' & trap "echo term $RANK" TERM; echo up $RANK; while :; do sleep 0.1; done''']
[signal]
grace = "3s"
`)
	s := w.start("openai4s", "submit", "--embedded", "--wait", job)
	id := upOnAll(w, s, 2)
	st := w.status(id).Workload
	e := w.run("qdel", st.Job.ID)
	require.Zero(t, e.code, e.stderr)
	assert.NotZero(t, s.wait().code, s.said())
	w.gone(st.Job.ID)
	w.silent("child-0", "child-1")
	text := w.read(st.Output)
	for rank := range 2 {
		assert.Contains(t, text, fmt.Sprintf("term %d\n", rank))
		assert.Contains(t, text, fmt.Sprintf("child %d\n", rank))
	}
	after := w.status(id).Workload
	assert.Contains(t, []string{"CANCELLED", "FAILED"}, after.Phase)
	assert.NotEqual(t, "COMMAND_FAILED", after.Reason, "the command didn't fail: %s", after.Message)
}

// Case 65: a cancel takes our job and no other of the user's.
func TestCase65CancelTakesOneJob(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := w.write("job.toml", "walltime = \"5m\"\ncommand = [\"sh\", \"-c\", 'echo up; exec sleep 600']\n[signal]\ngrace = \"2s\"\n")
	w.write("go.sh", "#!/bin/sh\nuntil test -e "+filepath.Join(w.dir, "go")+"; do sleep 0.1; done\n")
	s := w.start("openai4s", "submit", "--embedded", "--wait", job)
	id := upOnAll(w, s, 1)
	args := []string{"-f", "-N", attribute(w.job(w.status(id).Workload.Job.ID), "Job_Name"), "-j", "oe", "-o", filepath.Join(w.dir, "other.out")}
	for line := range strings.Lines(quickQueue(w)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		args = append(args, map[string]string{"queue": "-q", "account": "-A", "project": "-P"}[name], strings.Trim(value, `"`))
	}
	e := w.run("qsub", append(args, filepath.Join(w.dir, "go.sh"))...)
	require.Zero(t, e.code, e.stderr)
	other := strings.TrimSpace(e.stdout)
	e = w.run("openai4s", "cancel", "--embedded", id)
	require.Zero(t, e.code, e.stderr)
	assert.Equal(t, 20, s.wait().code, s.said())
	assert.Contains(t, []string{"Q", "R"}, attribute(w.job(other), "job_state"), "of the same name, and not ours")
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o644))
	w.gone(other)
}
