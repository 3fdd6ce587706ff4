package sbatch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

// shells are what /bin/sh may be on a node, as far as they are here.
func shells() map[string][]string {
	found := map[string][]string{"sh": {"/bin/sh"}}
	if path, err := exec.LookPath("bash"); err == nil {
		found["bash"] = []string{path, "--posix"}
	}
	if path, err := exec.LookPath("busybox"); err == nil {
		found["busybox"] = []string{path, "sh"}
	}
	return found
}

// bench is a RUN with a fake launcher, which starts one agent and gives its code, and a fake agent.
type bench struct {
	t      *testing.T
	run    string
	agent  string
	script string
	shell  []string
	now    bool // nothing is waited for
}

func newBench(t *testing.T, shell []string, agent string, change func(*scheduler.Request, *scheduler.Launch)) *bench {
	t.Helper()
	dir := filepath.Join(t.TempDir(), `it's "$HOME" #1`)
	require.NoError(t, os.Mkdir(dir, 0o700))
	b := &bench{t: t, run: dir, agent: filepath.Join(dir, "the agent"), script: filepath.Join(dir, "script"), shell: shell, now: true}
	b.write("the agent", "#!/bin/sh\n"+agent)
	b.write("launcher", "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n")
	b.write("gang-0.bundle", "")

	r, l := plainRequest("local"), plainLaunch()
	r.Workdir, l.Dir, l.Agent, l.Launcher = dir, dir, b.agent, []string{filepath.Join(dir, "launcher")}
	change(&r, &l)
	sub, err := Render(r, l)
	require.NoError(t, err)
	b.write("script", string(sub.Script))
	return b
}

func same(*scheduler.Request, *scheduler.Launch) {}

func (b *bench) write(name, text string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.run, name), []byte(text), 0o700))
}

func (b *bench) read(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.run, name))
	require.NoError(b.t, err)
	return string(text)
}

// command is one start of the script as job id.
func (b *bench) command(id string) *exec.Cmd {
	b.t.Helper()
	text := b.read("script")
	if b.now {
		for _, wait := range []string{" 60 ||", " 10 ||", " 120 ||"} {
			require.Contains(b.t, text, wait)
			text = strings.ReplaceAll(text, wait, " 0 ||")
		}
	}
	b.write("script-now", text)
	cmd := exec.Command(b.shell[0], append(b.shell[1:len(b.shell):len(b.shell)], filepath.Join(b.run, "script-now"))...)
	cmd.Env = append(os.Environ(), "OPENAI4S_JOB_ID="+id)
	return cmd
}

// start runs the script to its end.
func (b *bench) start(id string) (code int, stdout, stderr string) {
	b.t.Helper()
	cmd := b.command(id)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	return codeOf(b.t, cmd.Run()), out.String(), errs.String()
}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

func (b *bench) until(what string, holds func() bool) {
	b.t.Helper()
	require.Eventually(b.t, holds, patience, 5*time.Millisecond, what)
}

func (b *bench) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(b.run, name))
	return err == nil
}

// eachShell runs a test with every shell there is.
func eachShell(t *testing.T, test func(t *testing.T, shell []string)) {
	for name, shell := range shells() {
		t.Run(name, func(t *testing.T) { test(t, shell) })
	}
}

func TestScriptStartsTheAgent(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		b := newBench(t, shell, `
printf '%s\n' "$OPENAI4S_BUNDLE" "$OPENAI4S_EPOCH" "$OPENAI4S_JOB_ID" "$OPENAI4S_DEADLINE" "$#"
exit 42
`, same)
		before := time.Now().Unix()
		code, out, stderr := b.start("17")
		require.Empty(t, stderr)
		require.Equal(t, 42, code, "the launcher's, as there is no exit file")
		lines := strings.Split(out, "\n")
		require.Equal(t, []string{filepath.Join(b.run, "gang-0.bundle"), "0", "17"}, lines[:3])
		require.Equal(t, "0", lines[4], "the agent has no arguments")
		deadline, err := strconv.ParseInt(lines[3], 10, 64)
		require.NoError(t, err)
		require.InDelta(t, before+3600, deadline, 10)

		held, err := os.Readlink(filepath.Join(b.run, "job-alloc_ba9876543210"))
		require.NoError(t, err)
		require.Equal(t, "17", held)
		start, err := os.Readlink(filepath.Join(b.run, "start-0"))
		require.NoError(t, err)
		host, err := os.Hostname()
		require.NoError(t, err)
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		require.NoError(t, err)
		require.Regexp(t, "^17:"+host+":"+strings.TrimSpace(string(boot))+`:\d+:\d+$`, start)
	})
}

func TestScriptDoesWithoutProc(t *testing.T) {
	b := newBench(t, []string{"/bin/sh"}, "exit 0\n", same)
	b.write("script", strings.ReplaceAll(b.read("script"), "/proc/", "/nowhere/"))
	code, _, stderr := b.start("17")
	require.Zero(t, code)
	require.Empty(t, stderr)
	start, err := os.Readlink(filepath.Join(b.run, "start-0"))
	require.NoError(t, err)
	require.Regexp(t, `^17:[^:]+:-:\d+:\d+$`, start)
}

func TestOneJobHoldsAnAllocation(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		b := newBench(t, shell, "echo started\n", func(r *scheduler.Request, _ *scheduler.Launch) { r.Restarts = 3 })
		code, out, _ := b.start("17")
		require.Zero(t, code)
		require.Equal(t, "started\n", out)
		code, out, stderr := b.start("18")
		require.Equal(t, ExitClaim, code)
		require.Empty(t, out)
		require.Contains(t, stderr, "another job, 17, holds allocation alloc_ba9876543210")
		require.False(t, b.exists("start-1"), "a duplicate takes no epoch")
	})
}

func TestOfManyJobsAtOnceOneHoldsTheAllocation(t *testing.T) {
	b := newBench(t, []string{"/bin/sh"}, "echo started\n", same)
	var wg sync.WaitGroup
	outs := make([]bytes.Buffer, 8)
	cmds := make([]*exec.Cmd, len(outs))
	for i := range cmds {
		cmds[i] = b.command(fmt.Sprint(100 + i))
		cmds[i].Stdout = &outs[i]
	}
	for _, cmd := range cmds {
		wg.Go(func() { _ = cmd.Run() })
	}
	wg.Wait()
	started := 0
	for i, cmd := range cmds {
		if outs[i].Len() > 0 {
			started++
			require.Zero(t, cmd.ProcessState.ExitCode())
		} else {
			require.Equal(t, ExitClaim, cmd.ProcessState.ExitCode())
		}
	}
	require.Equal(t, 1, started)
}

// TestCase32ARequeueIsTheNextEpoch: the same job starts again and takes the next epoch of its allocation's.
func TestCase32ARequeueIsTheNextEpoch(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		b := newBench(t, shell, `echo "$OPENAI4S_EPOCH $OPENAI4S_BUNDLE"`, func(r *scheduler.Request, l *scheduler.Launch) {
			r.Restarts, l.FirstEpoch = 2, 4
		})
		for _, epoch := range []string{"4", "5", "6"} {
			b.write("gang-"+epoch+".bundle", "")
			code, out, stderr := b.start("17")
			require.Zero(t, code, stderr)
			require.Equal(t, epoch+" "+b.run+"/gang-"+epoch+".bundle\n", out)
		}
		code, out, stderr := b.start("17")
		require.Equal(t, ExitClaim, code)
		require.Empty(t, out)
		require.Contains(t, stderr, "epochs 4 to 6 are used up")
		require.False(t, b.exists("start-7"))
	})
}

func TestExitFileGoesBeforeTheLauncher(t *testing.T) {
	for text, want := range map[string]int{
		"0\n": 0, "3": 3, "143\n": 143, "255\n": 255, "256\n": 9, "-1\n": 9, "": 9, "7 or so\n": 9, "007\n": 9, "$(exit 1)\n": 9,
	} {
		b := newBench(t, []string{"/bin/sh"}, "exit 9\n", same)
		b.write("exit-0", text)
		code, _, stderr := b.start("17")
		require.Equal(t, want, code, "exit file: %q", text)
		require.Empty(t, stderr)
	}
}

// TestTermIsOutlived: a cancelled job's script gets TERM, too, and ends with the gang's code once the ranks ended.
func TestTermIsOutlived(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		b := newBench(t, shell, `
trap 'touch "$OPENAI4S_BUNDLE.termed"' TERM
touch "$OPENAI4S_BUNDLE.up"
until [ -e "$OPENAI4S_BUNDLE.go" ]; do sleep 0.02; done
echo 30 >"${OPENAI4S_BUNDLE%/*}/exit-0"
exit 12
`, same)
		cmd := b.command("17")
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		b.until("the agent is up", func() bool { return b.exists("gang-0.bundle.up") })
		for range 3 {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			select {
			case err := <-ended:
				require.Fail(t, "the script left its launcher behind", "%v", err)
			case <-time.After(50 * time.Millisecond):
			}
		}
		require.False(t, b.exists("gang-0.bundle.termed"), "only the script was told")
		b.write("gang-0.bundle.go", "")
		select {
		case err := <-ended:
			require.Equal(t, 30, codeOf(t, err))
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			require.Fail(t, "the script doesn't end")
		}
	})
}

// TestTermKeepsTheLaunchersCode: without an exit file the launcher's own code counts, not that of the wait which
// the signal broke off.
func TestTermKeepsTheLaunchersCode(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		b := newBench(t, shell, `
touch "$OPENAI4S_BUNDLE.up"
until [ -e "$OPENAI4S_BUNDLE.go" ]; do sleep 0.02; done
exit 12
`, same)
		cmd := b.command("17")
		require.NoError(t, cmd.Start())
		b.until("the agent is up", func() bool { return b.exists("gang-0.bundle.up") })
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		b.write("gang-0.bundle.go", "")
		require.Equal(t, 12, codeOf(t, cmd.Wait()))
	})
}

func TestScriptSaysWhatIsMissing(t *testing.T) {
	tests := map[string]struct {
		spoil func(*bench)
		id    string
		code  int
		words string
	}{
		"agent":            {func(b *bench) { require.NoError(b.t, os.Remove(b.agent)) }, "17", ExitAgent, "the agent"},
		"agent's mode":     {func(b *bench) { require.NoError(b.t, os.Chmod(b.agent, 0o600)) }, "17", ExitAgent, "can't be executed"},
		"bundle":           {func(b *bench) { require.NoError(b.t, os.Remove(filepath.Join(b.run, "gang-0.bundle"))) }, "17", ExitBundle, "gang-0.bundle is not there"},
		"job id":           {func(*bench) {}, "", ExitClaim, "no job id"},
		"claim of the job": {func(b *bench) { b.write("job-alloc_ba9876543210", "") }, "17", ExitClaim, "can't claim allocation"},
		"claim of the epoch": {func(b *bench) {
			require.NoError(b.t, os.Mkdir(filepath.Join(b.run, "start-0"), 0o700))
		}, "17", ExitClaim, "can't claim epoch 0"},
		"RUN": {func(b *bench) {
			b.write("script", strings.Replace(b.read("script"), "RUN=", "RUN=/nowhere", 1))
		}, "17", ExitClaim, "is not there"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []string{"/bin/sh"}, "echo started\n", same)
			test.spoil(b)
			code, out, stderr := b.start(test.id)
			require.Equal(t, test.code, code, stderr)
			require.Empty(t, out)
			require.True(t, strings.HasPrefix(stderr, "openai4s: "), stderr)
			require.Contains(t, stderr, test.words)
		})
	}
}

// TestCase53TheBundleMayShowLate: the script waits for what a shared file system doesn't show yet.
func TestCase53TheBundleMayShowLate(t *testing.T) {
	b := newBench(t, []string{"/bin/sh"}, "echo started\n", same)
	b.now = false
	require.NoError(t, os.Remove(filepath.Join(b.run, "gang-0.bundle")))
	cmd := b.command("17")
	var out bytes.Buffer
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	b.until("the epoch is taken", func() bool { return b.exists("start-0") })
	b.write("gang-0.bundle", "")
	require.NoError(t, cmd.Wait())
	require.Equal(t, "started\n", out.String())
}
