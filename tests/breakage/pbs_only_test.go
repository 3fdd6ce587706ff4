//go:build pbsfake

package breakage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
	"github.com/openai4s/hpc/tests/rig"
)

// queue is a rig whose jobs wait until it is released.
type queue struct {
	*rig.Rig
	lab *lab.Lab
}

func newQueue(t *testing.T) queue {
	t.Helper()
	config := roomy()
	config.SchedulingOff = true
	own := lab.Start(t, config)
	return queue{newRig(t, rig.Options{PBS: own}), own}
}

func (q queue) release(t *testing.T, _ string) { q.lab.Configure(t, roomy()) }

// requireCancelled: the server's record says so too.
func (q queue) requireCancelled(t *testing.T, job string) {
	t.Helper()
	record := q.JobRecord(t, job)
	require.Equal(t, "F", record["job_state"])
	require.Equal(t, "91", record["substate"])
	require.NotContains(t, record, "Exit_status")
}

// losing is a rig with a cluster of its own, to lose hosts of.
func losing(t *testing.T, o rig.Options, change func(*fakepbs.Config)) (*rig.Rig, *lab.Lab) {
	t.Helper()
	config := fakepbs.Default()
	change(&config)
	own := lab.Start(t, config)
	o.PBS = own
	return newRig(t, o), own
}

// TestLostHosts: whenever a host is lost, the workload's end names it, the others are stopped, and the job is gone. Of
// a host that isn't the first PBS itself never learns.
func TestLostHosts(t *testing.T) {
	for name, c := range map[string]struct {
		host    string
		early   bool // before its rank is started
		reasons []string
		exit    string // of the job; "" for any
	}{
		"another, before the launch": {host: "n3", early: true, reasons: []string{"WORKER_REGISTRATION_TIMEOUT"}},
		"another, in mid-run":        {host: "n3", reasons: []string{"WORKER_LOST"}},
		"the first, before launch":   {host: "n1", early: true, reasons: []string{"NODE_FAILED"}, exit: "-20"},
		"the first, in mid-run":      {host: "n1", reasons: []string{"NODE_FAILED"}, exit: "-20"},
	} {
		t.Run(name, func(t *testing.T) {
			o := rig.Options{Gateway: `orphan_ttl = "3s"`}
			if c.early {
				o.Agent = waitingAgent(t)
			}
			r, own := losing(t, o, func(*fakepbs.Config) {})
			alice := r.Alice(t)
			id := alice.Submit(t, rig.Shell(4, "echo up; sleep 607", "[gang]\ntimeout = \"5s\"\n[signal]\ngrace = \"2s\""))
			if c.early {
				rig.Await(t, rig.Patience, "the launcher", func() bool { return len(waiting(o.Agent)) == 1 })
				own.LoseHost(t, c.host)
				require.NoError(t, os.WriteFile(o.Agent+".go", nil, 0o644))
			} else {
				awaitOutput(t, alice, id, "up", 4)
				own.LoseHost(t, c.host)
			}
			w := alice.AwaitEnd(t, id)
			require.Equal(t, "FAILED", w.Phase(), "%s", w)
			require.Contains(t, c.reasons, w.Text("reason"), "%s", w)
			require.Contains(t, w.Text("message"), c.host, "%s", w)
			rig.Await(t, rig.Patience, "the job to be gone", func() bool { return jobGone(t, r) && len(r.Processes()) == 1 }) // the daemon
			if c.exit != "" {
				require.Equal(t, c.exit, r.JobRecord(t, w.Text("job", "id"))["Exit_status"])
			}
		})
	}
}

// waitingAgent is an agent that launches nothing before its path with .go added is there.
func waitingAgent(t *testing.T) string {
	t.Helper()
	return scriptedAgent(t, `if test "$1" = launch; then >$0.$$.waits; until test -e $0.go; do sleep 0.05; done; fi`)
}

func waiting(agent string) []string {
	found, _ := filepath.Glob(agent + ".*.waits")
	return found
}

// TestRecoverFromALostHost: with a recovery left, a new job follows on the hosts that are left, as a new epoch.
func TestRecoverFromALostHost(t *testing.T) {
	r, own := losing(t, rig.Options{Gateway: `orphan_ttl = "3s"`}, func(c *fakepbs.Config) { c.Hosts = []string{"n1", "n2", "n3"} })
	alice := r.Alice(t)
	mark := filepath.Join(alice.Home, "mark")
	waiting := alice.GoSubmit(t, rig.Shell(2, `if test -e `+mark+`.$RANK; then echo "again $RANK"; exit 0; fi; : >`+mark+`.$RANK; exec sleep 608`, "[signal]\ngrace = \"2s\""),
		"--json", "--recover", "1")
	id := alice.AwaitOnly(t, "ACTIVE")
	first := alice.Status(t, id).Text("job", "id")
	rig.Await(t, rig.Patience, "both commands to have left their marks", func() bool {
		marks, err := filepath.Glob(mark + ".*")
		return err == nil && len(marks) == 2
	})
	own.LoseHost(t, "n2")
	w := waiting.Wait(t, 2*rig.Patience).Doc(t)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Equal(t, 1, w.Int("epoch"), "%s", w)
	require.NotEqual(t, first, w.Text("job", "id"))
	require.NotEmpty(t, w.List("history"), "what was lost is said: %s", w)
	require.Contains(t, r.JobRecord(t, w.Text("job", "id"))["exec_host"], "n3")
	out := alice.Read(t, w.Text("output"))
	require.Contains(t, out, "again 0")
	require.Contains(t, out, "again 1")
}

// TestWalltime: the command is warned, what it writes then is kept, and the end is never COMPLETED.
func TestWalltime(t *testing.T) {
	for name, c := range map[string]struct {
		walltime, before string
		exit             string // of the job
		warned           bool
	}{
		"warned":            {walltime: "20s", before: "8s", exit: "143", warned: true},
		"the job's own end": {walltime: "10s", before: "0s", exit: "-29"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rig.Options{})
			alice := r.Alice(t)
			id := alice.Submit(t, rig.Shell(2, `trap "echo warned >warned.$RANK; exit 143" TERM; echo up; sleep 609 & wait`,
				fmt.Sprintf("walltime = %q\n[signal]\nbefore_walltime = %q\ngrace = \"2s\"", c.walltime, c.before)))
			w := alice.AwaitEnd(t, id)
			require.Equal(t, "FAILED", w.Phase(), "%s", w)
			require.Equal(t, "TIME_LIMIT_EXCEEDED", w.Text("reason"), "%s", w)
			for rank := range 2 {
				require.Equal(t, "warned\n", alice.Read(t, filepath.Join(filepath.Dir(w.Text("output")), fmt.Sprintf("warned.%d", rank))))
			}
			record := r.JobRecord(t, w.Text("job", "id"))
			require.Equal(t, c.exit, record["Exit_status"])
			require.Equal(t, !c.warned, strings.Contains(record["comment"], "walltime"))
		})
	}
}

// TestCase26DaemonWithoutJobHistory: where the server forgets a job at its end, an end is known as soon as its ranks
// have told theirs and the server knows the job no longer.
func TestCase26DaemonWithoutJobHistory(t *testing.T) {
	forgetful := func(c *fakepbs.Config) { c.History = false }
	// The deadline is far away: whatever ends before it was decided without.
	r, _ := losing(t, rig.Options{Gateway: `absence_deadline = "1h"`}, forgetful)
	alice := r.Alice(t)
	for _, c := range []struct{ script, phase, reason string }{
		{script: "exit 0", phase: "COMPLETED"},
		{script: "test $RANK != 1 || exit 3; sleep 600", phase: "FAILED", reason: "COMMAND_FAILED"},
	} {
		w := alice.AwaitEnd(t, alice.Submit(t, rig.Shell(3, c.script, "[signal]\ngrace = \"2s\"")))
		require.Equal(t, c.phase, w.Phase(), "%s", w)
		require.Equal(t, c.reason, w.Text("reason"), "%s", w)
	}
	id := alice.Submit(t, rig.Shell(3, "echo up; exec sleep 600", "[signal]\ngrace = \"2s\""))
	awaitOutput(t, alice, id, "up", 3)
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	requireCancelled(t, alice.AwaitEnd(t, id))
}

// TestCase26DeletedWithoutJobHistory: all ranks tell of TERM, and nobody will ever say why it came.
func TestCase26DeletedWithoutJobHistory(t *testing.T) {
	r, own := losing(t, rig.Options{Gateway: `absence_deadline = "3s"`}, func(c *fakepbs.Config) { c.History = false })
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(3, "echo up; exec sleep 600", "[signal]\ngrace = \"2s\""))
	awaitOutput(t, alice, id, "up", 3)
	require.Zero(t, alice.Exec(t, filepath.Join(own.Bin, "qdel"), alice.Status(t, id).Text("job", "id")).Code)
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Equal(t, "WORKER_LOST", w.Text("reason"), "%s", w)
	require.Contains(t, w.Text("message"), "no longer known to the scheduler", "%s", w)
}
