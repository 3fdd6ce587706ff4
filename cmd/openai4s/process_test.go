package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// deadline bounds what a test waits for; it is far above what an idle machine needs.
const deadline = 60 * time.Second

// desk is a folder and a home in which a test works, and the site it works on.
type desk struct {
	dir, home, site string
}

func newDesk(t *testing.T, files map[string]string) desk {
	t.Helper()
	d := desk{dir: t.TempDir(), home: shortDir(t)}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644))
	}
	return d
}

// process is a running CLI whose output can be read meanwhile.
type process struct {
	cmd         *exec.Cmd
	out, errs   safeBuffer
	over        chan struct{}
	description string
}

// safeBuffer is a buffer that one goroutine fills and another reads.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs a program; it is killed with the test.
func (d desk) start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(filepath.Join(programs, program), args...), over: make(chan struct{}), description: program + " " + strings.Join(args, " ")}
	p.cmd.Dir, p.cmd.Env = d.dir, environment(d.home)
	if d.site != "" {
		p.cmd.Env = append(p.cmd.Env, "OPENAI4S_SITE="+d.site)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.over)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.over
	})
	return p
}

// says waits until the program said text on stderr.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.errs.String(), text) }, deadline, 20*time.Millisecond,
		"%s never said %q", p.description, text)
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// ends waits for the end and returns the exit code.
func (p *process) ends(t *testing.T) int {
	t.Helper()
	select {
	case <-p.over:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(deadline):
		require.Fail(t, "it doesn't end", "%s\nstdout: %s\nstderr: %s", p.description, p.out.String(), p.errs.String())
		return -1
	}
}

// run starts a CLI command and waits for its end.
func (d desk) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := d.start(t, "openai4s", args...)
	code = p.ends(t)
	return p.out.String(), p.errs.String(), code
}

// gone holds that no process of this desk's jobs is left, which have its folder in their environment.
func (d desk) gone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(d.processes()) == 0 }, deadline, 50*time.Millisecond, "processes are left")
}

func (d desk) processes() []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		data, err := os.ReadFile(path)
		if err == nil && bytes.Contains(data, []byte("HOME="+d.home+"\x00")) {
			found = append(found, path)
		}
	}
	return found
}

// idIn is the first workload's id in a text.
func idIn(t *testing.T, text string) string {
	t.Helper()
	id := workloadID.FindString(text)
	require.NotEmpty(t, id, text)
	return id
}

const sleeper = `command = ["sh", "-c", "echo started; sleep 300"]
nodes = 2
[signal]
grace = "1s"
`

func TestCtrlCOfEmbeddedSubmitCancels(t *testing.T) {
	d := newDesk(t, map[string]string{"job.toml": sleeper})
	p := d.start(t, "openai4s", "submit", "job.toml")
	p.says(t, " ACTIVE")
	p.signal(t, syscall.SIGINT)
	require.Equal(t, exitCancelled, p.ends(t), p.errs.String())
	id := idIn(t, p.errs.String())
	require.Contains(t, p.errs.String(), "cancelling "+id+"; Ctrl-C once more leaves it")
	require.Contains(t, p.errs.String(), id+" CANCELLED USER_CANCELLED")
	d.gone(t)
}

func TestCtrlCBeforeTheGangIsThere(t *testing.T) {
	d := newDesk(t, map[string]string{"job.toml": sleeper})
	p := d.start(t, "openai4s", "submit", "job.toml")
	p.says(t, "wl_")
	p.signal(t, syscall.SIGINT)
	require.Equal(t, exitCancelled, p.ends(t), p.errs.String())
	d.gone(t)
}

func TestSecondCtrlCLeavesAndTheNextCommandTakesOver(t *testing.T) {
	d := newDesk(t, map[string]string{"job.toml": strings.Replace(sleeper, `"sh", "-c", "echo`, `"sh", "-c", "trap '' TERM; echo`, 1)})
	p := d.start(t, "openai4s", "submit", "job.toml")
	p.says(t, " ACTIVE")
	id := idIn(t, p.errs.String())
	p.signal(t, syscall.SIGINT)
	p.says(t, "Ctrl-C once more leaves it")
	p.signal(t, syscall.SIGINT)
	code := p.ends(t)
	if code == exitCancelled { // it was over before the second came
		t.Log("the cancel was faster than the second Ctrl-C")
	} else {
		require.Equal(t, exitDetached, code, p.errs.String())
		require.Contains(t, p.errs.String(), "hint: openai4s wait "+id)
	}
	_, stderr, code := d.run(t, "wait", id)
	require.Equal(t, exitCancelled, code, stderr)
	d.gone(t)
}

func TestTwoEmbeddedSubmitsShareOneGateway(t *testing.T) {
	d := newDesk(t, map[string]string{
		"first.toml":  "command = [\"sh\", \"-c\", \"until test -e let-first-go; do sleep 0.1; done\"]\n",
		"second.toml": "command = [\"sh\", \"-c\", \"until test -e let-second-go; do sleep 0.1; done\"]\n",
	})
	first := d.start(t, "openai4s", "submit", "first.toml")
	first.says(t, " ACTIVE")
	second := d.start(t, "openai4s", "submit", "second.toml")
	second.says(t, " ACTIVE")

	stdout, _, code := d.run(t, "status")
	require.Zero(t, code)
	require.Contains(t, stdout, fmt.Sprintf("process %d, 2 live workloads", first.cmd.Process.Pid))

	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "let-first-go"), nil, 0o644))
	first.says(t, "staying until they are over")
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "let-second-go"), nil, 0o644))
	require.Zero(t, second.ends(t), second.errs.String())
	require.Zero(t, first.ends(t), first.errs.String())
	require.Contains(t, second.errs.String(), " COMPLETED in ")
	d.gone(t)
}

// The process that serves dies; the one that waits takes the state over, and the ranks find it on the same port.
func TestWaiterTakesOverFromAKilledGateway(t *testing.T) {
	d := newDesk(t, map[string]string{"job.toml": "command = [\"sh\", \"-c\", \"until test -e go-on; do sleep 0.1; done; echo done\"]\nnodes = 2\n"})
	first := d.start(t, "openai4s", "submit", "job.toml")
	first.says(t, " ACTIVE")
	id := idIn(t, first.errs.String())
	waiter := d.start(t, "openai4s", "wait", "--logs", id)
	waiter.says(t, " ACTIVE")
	first.signal(t, syscall.SIGKILL)
	first.ends(t)
	require.Eventually(t, func() bool {
		stdout, _, _ := d.run(t, "status")
		return strings.Contains(stdout, fmt.Sprintf("process %d, 1 live workload", waiter.cmd.Process.Pid))
	}, deadline, 200*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "go-on"), nil, 0o644))
	require.Zero(t, waiter.ends(t), waiter.errs.String())
	require.Contains(t, waiter.errs.String(), id+" COMPLETED")
	require.Equal(t, "done\ndone\n", waiter.out.String())
	d.gone(t)
}
