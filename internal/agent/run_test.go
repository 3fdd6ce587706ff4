package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
)

func TestRunFromBundleToEnd(t *testing.T) {
	f := newFake(t, 2)
	a := f.agent(1, "FROM_THE_SCHEDULER=yes", "RANK=99")
	p := f.joined()
	assert.Contains(t, string(p.hello.Line), `"nonce": "first"`)
	require.NotNil(t, p.hello.Agent)
	assert.Equal(t, "77", p.hello.Agent.Job)
	assert.Equal(t, "n1", p.hello.Agent.Host)
	assert.Equal(t, "127.0.0.1", p.hello.Agent.Address)
	assert.Equal(t, 1, p.hello.Agent.NodeRank)
	assert.Zero(t, p.hello.Agent.FreePort, "rank 0 alone is met")

	o := f.order("sh", "-c", `echo "$RANK/$WORLD_SIZE $OPENAI4S_RANK $MASTER_ADDR:$MASTER_PORT $FROM_THE_SCHEDULER $OWN $HF_TOKEN [$OPENAI4S_BUNDLE]"; tail -n 1 "$OPENAI4S_HOSTFILE"; echo wrong >&2; exit 3`)
	o.Env, o.Secrets = map[string]string{"OWN": "mine"}, map[string]string{"HF_TOKEN": "hunter2"}
	p.order(wire.Start, o)
	p.order(wire.Start, o) // orders are idempotent
	e := p.exit()
	assert.Equal(t, wire.ExitReport{Seq: seqExit, Code: 3}, e)
	p.finish(e, wire.StopOrder{ExitCode: 3})
	assert.Equal(t, 0, a.code(), "the job's code stands in RUN")
	assert.Equal(t, "3\n", f.left("exit-0"))
	assert.Equal(t, "1/2 1 10.0.0.1:4711 yes mine hunter2 []\nn2\n", a.out.String())
	assert.Equal(t, "wrong\n", a.err.String())
	assert.Contains(t, p.output(), "1/2 1 10.0.0.1")
	assert.FileExists(t, f.bundle(), "rank 0 removes it")
}

func TestCommands(t *testing.T) {
	for _, tt := range []struct {
		name   string
		order  func(o *wire.StartOrder)
		code   int
		signal int
		says   string
	}{
		{"zero", func(o *wire.StartOrder) { o.Argv = []string{"true"} }, 0, 0, ""},
		{"a code", func(o *wire.StartOrder) { o.Argv = []string{"sh", "-c", "exit 3"} }, 3, 0, ""},
		{"a signal", func(o *wire.StartOrder) { o.Argv = []string{"sh", "-c", "kill -9 $$"} }, 0, 9, ""},
		{"no such program", func(o *wire.StartOrder) { o.Argv = []string{"no-such-program"} }, 127, 0, "command not found"},
		{"no such file", func(o *wire.StartOrder) { o.Argv = []string{"./no-such-file"} }, 127, 0, "no such file"},
		{"not executable", func(o *wire.StartOrder) {
			_ = os.WriteFile(filepath.Join(o.Workdir, "data"), nil, 0o600)
			o.Argv = []string{"./data"}
		}, 126, 0, "chmod +x"},
		{"a folder", func(o *wire.StartOrder) { o.Argv = []string{"/tmp"} }, 126, 0, "is a folder"},
		{"an interpreter that is missing", func(o *wire.StartOrder) {
			_ = os.WriteFile(filepath.Join(o.Workdir, "script"), []byte("#!/no/such/shell\n"), 0o700)
			o.Argv = []string{"./script"}
		}, 127, 0, "starting ./script"},
		{"no work folder", func(o *wire.StartOrder) { o.Workdir += "/missing" }, 126, 0, "work folder"},
		{"a roster that can't be read", func(o *wire.StartOrder) { o.Hosts = "n[1-" }, 126, 0, "roster"},
		{"setup that fails", func(o *wire.StartOrder) { o.Setup = []string{"false", "touch reached"} }, 1, 0, ""},
		{"setup that passes", func(o *wire.StartOrder) {
			o.Setup, o.Argv = []string{"export CODE=5", "cd /"}, []string{"sh", "-c", `[ "$PWD" = / ] && exit $CODE`}
		}, 5, 0, ""},
		{"setup that leaves by itself", func(o *wire.StartOrder) { o.Setup = []string{"exit 9"} }, 9, 0, ""},
		{"a command that fails after setup", func(o *wire.StartOrder) {
			o.Setup, o.Argv = []string{":"}, []string{"sh", "-c", "false; exit 4"}
		}, 4, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, 1)
			a := f.agent(0)
			p := f.joined()
			o := f.order("true")
			tt.order(&o)
			p.order(wire.Start, o)
			e := p.exit()
			assert.Equal(t, tt.code, e.Code)
			assert.Equal(t, tt.signal, e.Signal)
			assert.Empty(t, e.Cause)
			assert.Contains(t, e.Message, tt.says)
			next := filepath.Join(filepath.Dir(f.bundle()), "gang-1.bundle")
			require.NoError(t, os.WriteFile(next, nil, 0o600))
			p.finish(e, wire.StopOrder{ExitCode: tt.code, Status: "failed"})
			assert.Equal(t, 0, a.code())
			assert.Contains(t, a.err.String(), tt.says, "told in the job's own output too")
			assert.NoFileExists(t, f.bundle(), "spent")
			assert.FileExists(t, next, "the scheduler may start the job again")
			assert.NoFileExists(t, filepath.Join(o.Workdir, "reached"))
		})
	}
}

// pidIn waits for a file with a process id in it.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	require.Eventually(t, func() bool {
		b, _ := os.ReadFile(path)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid > 0
	}, 10*time.Second, 5*time.Millisecond)
	return pid
}

func gone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, 10*time.Second, 5*time.Millisecond, "process %d lives", pid)
}

// Case 64: TERM to the whole group, KILL after the grace, and nothing is left: not a child in a session of its own, not
// one that ignores TERM.
func TestCase64StopOrder(t *testing.T) {
	f := newFake(t, 1)
	a := f.agent(0)
	p := f.joined()
	o := f.order("sh", "-c", `
		setsid sh -c 'trap "" TERM; echo $$ > away; while :; do sleep 0.1; done' &
		sh -c 'trap "echo termed > child; exit 0" TERM; echo $$ > group; while :; do sleep 0.05; done' &
		trap "" TERM; echo $$ > leader; while :; do sleep 0.1; done`)
	p.order(wire.Start, o)
	var pids []int
	for _, name := range []string{"away", "group", "leader"} {
		pids = append(pids, pidIn(t, filepath.Join(o.Workdir, name)))
	}
	start := time.Now()
	p.order(wire.Stop, wire.StopOrder{ID: "stop-0", ExitCode: 20, GraceMS: 300})
	e := p.exit()
	assert.Equal(t, 9, e.Signal)
	assert.Equal(t, wire.CauseOrder, e.Cause)
	assert.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	assert.FileExists(t, filepath.Join(o.Workdir, "child"), "the group had its TERM")
	for _, pid := range pids {
		gone(t, pid)
	}
	p.finish(e, wire.StopOrder{ExitCode: 20, Status: "cancelled"})
	assert.Equal(t, 0, a.code())
	assert.Equal(t, "20\n", f.left("exit-0"))
}

func TestChildrenThatOutliveTheCommand(t *testing.T) {
	f := newFake(t, 1)
	f.agent(0)
	p := f.joined()
	o := f.order("sh", "-c", `setsid sh -c 'echo $$ > away; sleep 1000' & while [ ! -s away ]; do sleep 0.02; done; exit 6`)
	p.order(wire.Start, o)
	assert.Equal(t, 6, p.exit().Code)
	gone(t, pidIn(t, filepath.Join(o.Workdir, "away")))
}

func TestSchedulersTerm(t *testing.T) {
	t.Run("the command ends, and says who ended it", func(t *testing.T) {
		f := newFake(t, 1)
		a := f.agent(0)
		p := f.joined()
		p.order(wire.Start, f.order("sh", "-c", `trap "exit 7" TERM; echo up; while :; do sleep 0.05; done`))
		require.Eventually(t, func() bool { return a.out.String() == "up\n" }, 10*time.Second, 5*time.Millisecond)
		a.signal(syscall.SIGTERM)
		e := p.exit()
		assert.Equal(t, 7, e.Code)
		assert.Equal(t, wire.CauseScheduler, e.Cause)
		p.finish(e, wire.StopOrder{ExitCode: 143})
		assert.Equal(t, 0, a.code())
	})
	t.Run("before the start", func(t *testing.T) {
		f := newFake(t, 1)
		a := f.agent(0)
		p := f.joined()
		p.ready()
		a.signal(syscall.SIGTERM)
		e := p.exit()
		assert.Equal(t, 143, e.Code)
		assert.Equal(t, wire.CauseScheduler, e.Cause)
		p.conn.Close()
		f.ln.Close()
		assert.Equal(t, 143, a.code())
	})
	t.Run("while nobody answers", func(t *testing.T) {
		f := newFake(t, 1)
		f.ln.Close()
		a := f.agent(0)
		require.Eventually(t, func() bool { // its handler stands once it has begun to dial
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
			return strings.Contains(string(b), "SigCgt") && handles(string(b), syscall.SIGTERM)
		}, 10*time.Second, 5*time.Millisecond)
		a.signal(syscall.SIGTERM)
		assert.NotEqual(t, 0, a.code())
	})
}

// handles reads a process's mask of caught signals.
func handles(status string, s syscall.Signal) bool {
	_, rest, _ := strings.Cut(status, "SigCgt:")
	text, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	return err == nil && mask&(1<<(uint(s)-1)) != 0
}

// Case 47: the gateway goes away and comes back; the work goes on and its end is reported.
func TestCase47GatewayComesBack(t *testing.T) {
	f := newFake(t, 1)
	a := f.agent(0)
	p := f.joined()
	o := f.order("sh", "-c", `echo up; while [ ! -e go ]; do sleep 0.02; done; exit 5`)
	p.order(wire.Start, o)
	p.until(wire.Status, new(wire.StatusReport))
	address := f.ln.Addr().String()
	f.ln.Close()
	p.conn.Close()
	require.NoError(t, os.WriteFile(filepath.Join(o.Workdir, "go"), nil, 0o600))

	f.open(address)
	back := f.joined()
	assert.Contains(t, string(back.hello.Line), `"nonce": "resume"`)
	assert.Equal(t, p.hello.Agent.Attempt, back.hello.Agent.Attempt)
	var s wire.StatusReport
	back.until(wire.Status, &s) // it was never acknowledged
	assert.Equal(t, "started", s.State)
	back.order(wire.Start, o) // greeted again: it must not run twice
	e := back.exit()
	assert.Equal(t, 5, e.Code)

	// The acknowledgement is lost: the report comes once more.
	back.conn.Close()
	third := f.joined()
	e = third.exit()
	assert.Equal(t, 5, e.Code)
	third.finish(e, wire.StopOrder{ExitCode: 5})
	assert.Equal(t, 0, a.code())
	assert.Equal(t, 1, strings.Count(a.out.String(), "up"))
}

func TestGatewayGoneForGood(t *testing.T) {
	f := newFake(t, 2)
	a := f.agent(1)
	p := f.joined()
	o := f.order("sh", "-c", `while [ ! -e go ]; do sleep 0.02; done; exit 5`)
	p.order(wire.Start, o)
	p.until(wire.Status, new(wire.StatusReport))
	f.ln.Close()
	p.conn.Close()
	require.NoError(t, os.WriteFile(filepath.Join(o.Workdir, "go"), nil, 0o600))
	require.Eventually(t, func() bool { return len(children(a.cmd.Process.Pid)) == 0 }, 10*time.Second, 5*time.Millisecond)
	a.signal(syscall.SIGTERM) // or 30 s would pass
	assert.Equal(t, 5, a.code())
	var r struct {
		Epoch int64
		Rank  int
		Code  int
		Host  string
	}
	decode(t, f.left("exit-0.1"), &r)
	assert.Equal(t, 5, r.Code)
	assert.Equal(t, 1, r.Rank)
	assert.Equal(t, "n1", r.Host)
}

func children(pid int) []int {
	var found []int
	for _, p := range processes() {
		if p.parent == pid && !p.ended {
			found = append(found, p.pid)
		}
	}
	return found
}

func TestFailOrderEndsTheLauncher(t *testing.T) {
	f := newFake(t, 1)
	a := f.agent(0)
	p := f.joined()
	p.order(wire.Start, f.order("true"))
	p.finish(p.exit(), wire.StopOrder{ExitCode: 0, Fail: true})
	assert.Equal(t, exitAbandoned, a.code())
	assert.Equal(t, "0\n", f.left("exit-0"))
}

// A rank whose epoch was fenced while it was away ends its command and keeps the command's own code.
func TestRefusedAfterItHadJoined(t *testing.T) {
	f := newFake(t, 1)
	a := f.agent(0)
	p := f.joined()
	p.order(wire.Start, f.order("sh", "-c", `trap "exit 7" TERM; echo up; while :; do sleep 0.05; done`))
	require.Eventually(t, func() bool { return a.out.String() == "up\n" }, 10*time.Second, 5*time.Millisecond)
	f.refuse()
	p.conn.Close()
	start := time.Now()
	assert.Equal(t, 7, a.code())
	assert.Less(t, time.Since(start), ackWait/2, "nobody would acknowledge")
	assert.Contains(t, a.err.String(), "refused")
	assert.Contains(t, f.left("exit-0.0"), `"code":7`)
}

func TestRefusedAtOnce(t *testing.T) {
	f := newFake(t, 1)
	f.refuse()
	a := f.agent(0)
	assert.Equal(t, exitBootstrap, a.code())
	assert.Contains(t, a.err.String(), "refused this rank's credential")
	assert.Empty(t, f.left("exit-0.0"))
}

func TestRunRefusesABundle(t *testing.T) {
	t.Run("that others can read (54)", func(t *testing.T) {
		f := newFake(t, 1)
		require.NoError(t, os.Chmod(f.bundle(), 0o640))
		a := f.agent(0)
		assert.Equal(t, exitBootstrap, a.code())
		assert.Contains(t, a.err.String(), "chmod 600")
	})
	t.Run("for fewer ranks", func(t *testing.T) {
		f := newFake(t, 1)
		a := f.agent(4)
		assert.Equal(t, exitBootstrap, a.code())
	})
}

// Case 53: a bundle that isn't there yet.
func TestCase53BundleComesLate(t *testing.T) {
	f := newFake(t, 1)
	away := f.bundle() + ".away"
	require.NoError(t, os.Rename(f.bundle(), away))
	a := f.agent(0)
	require.Eventually(t, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
		return handles(string(b), syscall.SIGTERM)
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, os.Rename(away, f.bundle()))
	f.joined()
	_ = a
}

// The command doesn't outlive an agent that was killed, in a session of its own neither.
func TestKilledAgentLeavesNothing(t *testing.T) {
	f := newFake(t, 1)
	a := f.agent(0)
	p := f.joined()
	o := f.order("sh", "-c", `setsid sh -c 'echo $$ > away; sleep 1000' & echo $$ > leader; sleep 1000`)
	p.order(wire.Start, o)
	away, leader := pidIn(t, filepath.Join(o.Workdir, "away")), pidIn(t, filepath.Join(o.Workdir, "leader"))
	a.signal(syscall.SIGKILL)
	gone(t, away)
	gone(t, leader)
}

// A gateway that admits a rank and cuts it off is not dialled as fast as it can answer.
func TestCutOffAgainAndAgain(t *testing.T) {
	f := newFake(t, 1)
	f.agent(0)
	start := time.Now()
	for range 6 {
		f.joined().conn.Close()
	}
	assert.Greater(t, time.Since(start), time.Second)
}
