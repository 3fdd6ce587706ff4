package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// withDaemon is a desk whose site has a daemon, which runs.
func withDaemon(t *testing.T, files map[string]string) (desk, *process) {
	t.Helper()
	d := newDesk(t, files)
	d.site = filepath.Join(d.home, "site.toml")
	require.NoError(t, os.WriteFile(d.site, []byte(`[site]
name = "t"
scheduler = "local"
runtime_dir = "`+d.home+`/run"
[gateway]
listen = "127.0.0.1:0"
control = "`+d.home+`/c/control.sock"
state_dir = "`+d.home+`/daemon"
[profiles.default]
max_nodes = 8
`), 0o644))
	return d, d.startDaemon(t)
}

func (d desk) startDaemon(t *testing.T) *process {
	t.Helper()
	p := d.start(t, "openai4s-gateway")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(d.home, "c", "control.sock"))
		_, _, code := d.run(t, "status")
		return err == nil && code == 0
	}, deadline, 50*time.Millisecond, "the daemon doesn't come up")
	return p
}

func TestSubmitToADaemon(t *testing.T) {
	d, _ := withDaemon(t, map[string]string{"job.toml": "command = [\"echo\", \"hi\"]\n"})
	stdout, stderr, code := d.run(t, "submit", "job.toml")
	require.Zero(t, code, stderr)
	id := idIn(t, stdout)
	require.Equal(t, id+"\n", stdout, "stdout has the id alone")
	require.Contains(t, stderr, id+" job: 1 node × 1 rank, job 1")

	_, stderr, code = d.run(t, "wait", id)
	require.Zero(t, code, stderr)
	require.Contains(t, stderr, id+" COMPLETED in ")
	stdout, _, code = d.run(t, "logs", id)
	require.Zero(t, code)
	require.Equal(t, "hi\n", stdout)

	stdout, stderr, code = d.run(t, "submit", "--wait", "--logs", "job.toml")
	require.Zero(t, code, stderr)
	require.Equal(t, "hi\n", stdout)
	stdout, stderr, code = d.run(t, "submit", "--wait", "job.toml")
	require.Zero(t, code, stderr)
	require.Empty(t, stdout, "a daemon's job shows its output where asked for")
	stdout, stderr, code = d.run(t, "submit", "--json", "job.toml")
	require.Zero(t, code)
	require.Empty(t, stderr)
	require.Contains(t, stdout, `"phase": "PENDING"`)
	_, _, code = d.run(t, "wait", idIn(t, stdout))
	require.Zero(t, code)
	d.onlyDaemon(t)
}

// onlyDaemon holds that no job's process is left.
func (d desk) onlyDaemon(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(d.processes()) == 1 }, deadline, 50*time.Millisecond, "processes are left")
}

func TestCtrlCOfADaemonsWaitDetaches(t *testing.T) {
	d, _ := withDaemon(t, map[string]string{"job.toml": sleeper})
	p := d.start(t, "openai4s", "submit", "--wait", "job.toml")
	p.says(t, " ACTIVE")
	id := idIn(t, p.errs.String())
	p.signal(t, syscall.SIGINT)
	require.Equal(t, exitDetached, p.ends(t))
	require.Contains(t, p.errs.String(), "openai4s: left; "+id+" goes on\nhint: openai4s wait "+id+"\n")
	require.Empty(t, p.out.String())

	p = d.start(t, "openai4s", "wait", id)
	p.says(t, " ACTIVE")
	p.signal(t, syscall.SIGTERM)
	require.Equal(t, exitDetached, p.ends(t))
	require.Contains(t, p.errs.String(), "openai4s: left; "+id+" goes on\n")

	stdout, stderr, code := d.run(t, "cancel", id)
	require.Zero(t, code, stderr)
	require.True(t, strings.HasPrefix(stdout, id+" "), stdout)
	_, _, code = d.run(t, "wait", id)
	require.Equal(t, exitCancelled, code)
	stdout, _, code = d.run(t, "cancel", id)
	require.Zero(t, code)
	require.Equal(t, id+" was over already: CANCELLED\n", stdout)
	d.onlyDaemon(t)
}

func TestADaemonThatWentAwayIsTold(t *testing.T) {
	d, daemon := withDaemon(t, map[string]string{"job.toml": sleeper})
	daemon.signal(t, syscall.SIGTERM)
	daemon.ends(t)
	stdout, stderr, code := d.run(t, "submit", "job.toml")
	require.Equal(t, exitNobody, code, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "hint: start it with: openai4s-gateway --site "+d.site)
	require.NoDirExists(t, filepath.Join(d.home, "state"), "an embedded gateway stood in for it")
	d.gone(t)
}
