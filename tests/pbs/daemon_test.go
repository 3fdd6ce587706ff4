//go:build !live

package pbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/rig"
)

// A site with a daemon of its own user, as rig makes it, on the fake.

// newSite is a site whose users are unprivileged, and whose PBS is as change makes it.
func newSite(t *testing.T, o rig.Options, change func(*fakepbs.Config)) (*rig.Rig, fake) {
	t.Helper()
	f := fakeWith(t, change)
	o.PBS = f.Lab
	return rig.New(t, o), f
}

func asItIs(*fakepbs.Config) {}

// wrapper writes a program of a site's that stands before a command of PBS's, and returns its path. $here is its
// folder, where everybody may write; $command is the real one.
func wrapper(t *testing.T, f fake, name, script string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "o4s-site-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o1777))
	path := filepath.Join(dir, name)
	text := fmt.Sprintf("#!/bin/sh\nhere=%s\ncommand=%s\n%s\n", dir, filepath.Join(f.Bin, name), script)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

const untilReleased = `until test -e ../release; do sleep 0.2; done`

func lines(path string) []string {
	text, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// Case 23: the daemon asks once for all workloads, one command at a time.
func TestCase23OneQueryForAll(t *testing.T) {
	f := fakeWith(t, asItIs)
	qstat := wrapper(t, f, "qstat", `case "$*" in *-f*pbshead*) echo "$(id -un) $*" >>$here/asked ;; esac; exec $command "$@"`)
	r := rig.New(t, rig.Options{PBS: f.Lab, Site: fmt.Sprintf("commands = { qstat = %q }", qstat)})
	alice := r.Alice(t)
	var ids, jobs []string
	for range 3 {
		ids = append(ids, alice.Submit(t, rig.Shell(1, untilReleased, "")))
	}
	for _, id := range ids {
		jobs = append(jobs, alice.AwaitPhase(t, id, "ACTIVE").Text("job", "id"))
	}
	log := filepath.Join(filepath.Dir(qstat), "asked")
	before := len(lines(log))
	rig.Await(t, rig.Patience, "the daemon to ask three times more", func() bool { return len(lines(log)) >= before+3 })
	for _, line := range lines(log)[before:] {
		for _, job := range jobs {
			require.Contains(t, line, job, "one question names every live job")
		}
	}
	alice.Write(t, "release", "")
	for _, id := range ids {
		require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase())
	}
}

// Cases 24 and 25: for a while every qstat fails, hangs up or lies with an empty answer; nothing moves.
func TestCase24And25NoAnswerMovesNothing(t *testing.T) {
	for name, answer := range map[string]string{
		"Case24 server down":  `echo "Connection refused" >&2; echo "qstat: cannot connect to server pbshead (errno=15010)" >&2; exit 255`,
		"Case24 killed":       `kill -9 $$`,
		"Case25 empty answer": `exit 0`,
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeWith(t, asItIs)
			qstat := wrapper(t, f, "qstat", `test -e $here/broken || exec $command "$@"; echo x >>$here/failed; `+answer)
			here := filepath.Dir(qstat)
			r := rig.New(t, rig.Options{PBS: f.Lab, Gateway: `absence_deadline = "2s"`, Site: fmt.Sprintf("commands = { qstat = %q }", qstat)})
			alice := r.Alice(t)
			id := alice.Submit(t, rig.Shell(4, untilReleased, ""))
			alice.AwaitPhase(t, id, "ACTIVE")
			require.NoError(t, os.WriteFile(filepath.Join(here, "broken"), nil, 0o644))
			rig.Await(t, rig.Patience, "two questions to fail", func() bool { return len(lines(filepath.Join(here, "failed"))) >= 2 })
			w := alice.Status(t, id)
			require.Equal(t, "ACTIVE", w.Phase(), "%s", w)
			require.Equal(t, 4, w.Int("ranks", "live"))
			alice.Write(t, "release", "")
			rig.Await(t, rig.Patience, "the ranks to have ended", func() bool { return alice.Status(t, id).Phase() != "ACTIVE" })
			require.False(t, alice.Status(t, id).Over(), "nobody has said that the job is over")
			require.NoError(t, os.Remove(filepath.Join(here, "broken")))
			require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase())
		})
	}
}

// Cases 34 to 38: jobs of somebody else, whose names and environments are made to be misread, change nothing.
func TestCase34To38OthersJobsChangeNothing(t *testing.T) {
	r, f := newSite(t, rig.Options{}, asItIs)
	alice, bob := r.Alice(t), r.Bob(t)
	id := alice.Submit(t, rig.Shell(2, untilReleased, ""))
	w := alice.AwaitPhase(t, id, "ACTIVE")
	job := w.Text("job", "id")
	bob.Env = []string{
		"BASH_FUNC_module%%=() {  eval `x \"$@\"`\n}",
		"FORGED=x\n\nJob Id: " + job + "\n    Job_Name = " + w.Text("job_name") + "\n    Job_Owner = " + alice.Name + "@pbshead\n    job_state = F\n    substate = 91\n",
		"BYTES=\xff\xfe\x1b[31m", `TAIL=back\`, "NUMBER=007",
		"LONG=" + strings.Repeat("wordafterword,", 40),
	}
	theirs := bob.Exec(t, "sh", "-c", "echo sleep 600 | "+filepath.Join(f.Bin, "qsub")+" -V -N "+w.Text("job_name")+" -q workq")
	require.Zero(t, theirs.Code, theirs.Stderr)
	require.Equal(t, 85, alice.Run(t, "status", strings.TrimSpace(theirs.Stdout)).Code, "not a workload of anybody's")
	require.Equal(t, id, alice.Run(t, "status", "--json", strings.TrimSuffix(job, ".pbshead")).Doc(t).Text("id"), "Case 37: with and without the server's name")
	alice.Write(t, "release", "")
	w = alice.AwaitEnd(t, id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Zero(t, bob.Exec(t, filepath.Join(f.Bin, "qdel"), strings.TrimSpace(theirs.Stdout)).Code)
	rig.Await(t, rig.Patience, "the other job to be gone", func() bool { return len(r.Jobs(t)) == 0 })
}

// A user sees, waits for and cancels their own workloads alone.
func TestCase65OtherUsersAreOthers(t *testing.T) {
	r, _ := newSite(t, rig.Options{}, asItIs)
	alice, bob := r.Alice(t), r.Bob(t)
	if alice.UID == bob.UID {
		t.Skip("two users are two only where the test runs as root; the test command does")
	}
	id := alice.Submit(t, rig.Shell(1, "exec sleep 600", "[signal]\ngrace = \"2s\""))
	job := alice.AwaitPhase(t, id, "ACTIVE").Text("job", "id")
	for _, args := range [][]string{{"status", id}, {"status", job}, {"wait", id}, {"cancel", id}, {"cancel", job}, {"logs", id}} {
		require.Equal(t, 85, bob.Run(t, args...).Code, "%v", args)
	}
	require.Empty(t, bob.List(t))
	require.Equal(t, "ACTIVE", alice.Status(t, id).Phase())
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, id).Phase())
}

// A daemon that isn't shown other users' jobs believes nobody's absence; the owner's own commands tell it.
func TestHiddenJobs(t *testing.T) {
	r, _ := newSite(t, rig.Options{Gateway: `absence_deadline = "2s"`}, func(c *fakepbs.Config) { c.HideOthers = true })
	alice := r.Alice(t)
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, alice.Submit(t, rig.Shell(2, "sleep 5", ""))).Phase())
	id := alice.Submit(t, rig.Shell(2, "exec sleep 600", "[signal]\ngrace = \"2s\""))
	alice.AwaitPhase(t, id, "ACTIVE")
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, id).Phase())
}
