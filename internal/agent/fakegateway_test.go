package agent

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/credential/bundle"
	"github.com/openai4s/hpc/gateway/wire"
)

// asAgent makes the test program an agent: Run takes signals and orphans of its whole process.
const asAgent = "OPENAI4S_TEST_AS_AGENT"

// TestMain lets the test program stand in for the agent's own. The guard comes first: an agent starts its own program
// again as one, with nothing in its environment, and that must never run the tests anew.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "guard":
		os.Exit(GuardCommand(os.Args[2:], os.Stdin, os.Stderr))
	case os.Getenv(asAgent) != "":
		os.Exit(Main(os.Args[1:], "test", true, os.Stdout, os.Stderr))
	case len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test."):
		os.Exit(exitUsage) // started by itself as something that isn't known here
	}
	os.Exit(m.Run())
}

// fake is a gateway whose every word the test says.
type fake struct {
	t     testing.TB
	run   string // RUN
	head  bundle.Header
	ln    net.Listener
	conf  *tls.Config
	joins chan *peer

	refusing atomic.Bool
}

// peer is one connection of the agent that was admitted.
type peer struct {
	t      testing.TB
	conn   net.Conn
	hello  wire.Hello
	frames chan wire.Frame
	kept   []wire.Frame // read while waiting for others
}

func newFake(t testing.TB, ranks int) *fake {
	t.Helper()
	config, pin := identity(t)
	f := &fake{t: t, run: t.TempDir(), conf: config, joins: make(chan *peer, 100)}
	require.NoError(t, os.Chmod(f.run, 0o700))
	f.head = bundle.Header{
		Format: 1, Workload: "wl_0123456789ab", Allocation: "alloc_0123456789ab", Size: ranks, RanksPerNode: 1,
		TLS: "on", Pins: []string{pin}, DialTimeout: "20s",
	}
	f.open("127.0.0.1:0")
	f.head.Addresses = []string{f.ln.Addr().String()}
	f.write()
	return f
}

// write writes the bundle.
func (f *fake) write() {
	f.t.Helper()
	lines := make([][]byte, f.head.Size)
	for r := range lines {
		lines[r] = fmt.Appendf(nil, `{"rank": %d, "nonce": "first"}`, r)
	}
	data, err := bundle.Encode(f.head, lines)
	require.NoError(f.t, err)
	require.NoError(f.t, bundle.Write(f.bundle(), data))
}

func (f *fake) bundle() string { return filepath.Join(f.run, "gang-0.bundle") }

// open listens, again on the same port after a close.
func (f *fake) open(address string) {
	f.t.Helper()
	var err error
	require.Eventually(f.t, func() bool {
		f.ln, err = net.Listen("tcp", address)
		return err == nil
	}, 5*time.Second, 5*time.Millisecond)
	ln := f.ln
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.admit(c) })
		}
	})
	f.t.Cleanup(func() { ln.Close(); wg.Wait() })
}

func (f *fake) admit(raw net.Conn) {
	conn := tls.Server(raw, f.conf)
	hello, _, err := wire.ReadHello(conn)
	if err != nil {
		conn.Close()
		return
	}
	if f.refusing.Load() {
		_, _ = conn.Write([]byte(wire.Refused))
		conn.Close()
		return
	}
	p := &peer{t: f.t, conn: conn, hello: hello, frames: make(chan wire.Frame, 1000)}
	if _, err := conn.Write(wire.Accepted("kernel:1", []byte(`{"nonce": "resume"}`))); err != nil {
		conn.Close()
		return
	}
	f.joins <- p
	for {
		fr, err := wire.ReadFrame(conn)
		if err != nil {
			close(p.frames)
			conn.Close()
			return
		}
		p.frames <- fr
	}
}

// refuse answers every hello from here on with the verdict.
func (f *fake) refuse() { f.refusing.Store(true) }

func (f *fake) joined() *peer {
	f.t.Helper()
	select {
	case p := <-f.joins:
		f.t.Cleanup(func() { p.conn.Close() })
		return p
	case <-time.After(20 * time.Second):
		f.t.Fatal("no agent came")
		return nil
	}
}

func (p *peer) order(t wire.Type, payload any) {
	p.t.Helper()
	fr, err := wire.JSON(t, payload)
	require.NoError(p.t, err)
	require.NoError(p.t, wire.WriteFrame(p.conn, fr))
}

// until waits for a frame of the type.
func (p *peer) until(t wire.Type, into any) {
	p.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case fr, ok := <-p.frames:
			require.True(p.t, ok, "the agent closed the connection")
			if fr.Type == t {
				require.NoError(p.t, fr.Decode(into))
				return
			}
			p.kept = append(p.kept, fr)
		case <-timeout:
			p.t.Fatalf("no frame %#x came", byte(t))
		}
	}
}

// ready waits for the agent's first word: it has read its answer.
func (p *peer) ready() {
	p.t.Helper()
	select {
	case <-p.frames:
	case <-time.After(20 * time.Second):
		p.t.Fatal("the agent says nothing")
	}
}

func (p *peer) exit() wire.ExitReport {
	p.t.Helper()
	var e wire.ExitReport
	p.until(wire.Exit, &e)
	return e
}

// finish acknowledges a report and gives the last order.
func (p *peer) finish(e wire.ExitReport, done wire.StopOrder) {
	p.t.Helper()
	p.order(wire.Ack, wire.AckOrder{Seq: e.Seq})
	done.ID, done.Done = "done-0", true
	p.order(wire.Stop, done)
}

// output is what was copied to the gateway so far.
func (p *peer) output() string {
	var b strings.Builder
	for _, fr := range p.kept {
		if fr.Type == wire.Stdout || fr.Type == wire.Stderr {
			b.Write(fr.Payload)
		}
	}
	return b.String()
}

// program is a running agent.
type program struct {
	t      testing.TB
	cmd    *exec.Cmd
	out    *sink
	err    *sink
	waited chan error
}

func (f *fake) agent(rank int, more ...string) *program {
	f.t.Helper()
	self, err := os.Executable()
	require.NoError(f.t, err)
	p := &program{t: f.t, cmd: exec.Command(self, "--bundle", f.bundle(), "--epoch", "0", "--rank", fmt.Sprint(rank), "--job", "77", "--host", "n1"), out: &sink{}, err: &sink{}, waited: make(chan error, 1)}
	p.cmd.Env = append(append(os.Environ(), asAgent+"=1"), more...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.WaitDelay = 5 * time.Second
	require.NoError(f.t, p.cmd.Start())
	go func() { p.waited <- p.cmd.Wait() }()
	f.t.Cleanup(func() {
		if f.t.Failed() {
			f.t.Logf("the agent said %q and %q", p.out, p.err)
		}
		_ = p.cmd.Process.Kill()
		if p.waited != nil {
			<-p.waited
		}
	})
	return p
}

// code waits for the agent's end.
func (p *program) code() int {
	p.t.Helper()
	select {
	case err := <-p.waited:
		p.waited = nil
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			p.t.Fatalf("waiting for the agent: %v", err)
		}
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(40 * time.Second):
		p.t.Fatalf("the agent doesn't end; it says %s", p.err)
		return 0
	}
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// order to start a command in a folder of its own.
func (f *fake) order(argv ...string) wire.StartOrder {
	return wire.StartOrder{
		ID: "start-0", Argv: argv, Workdir: f.t.TempDir(), Hosts: "n[1-2]", PerNode: 1, Size: f.head.Size,
		MasterAddr: "10.0.0.1", MasterPort: 4711, GraceMS: 300,
	}
}

// left reads a file of RUN; "" where there is none.
func (f *fake) left(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.run, name))
	if err != nil {
		return ""
	}
	info, err := os.Stat(filepath.Join(f.run, name))
	require.NoError(f.t, err)
	assert.Equal(f.t, os.FileMode(0o600), info.Mode().Perm())
	return string(b)
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	require.NoError(t, d.Decode(into), text)
	_, err := d.Token()
	require.ErrorIs(t, err, io.EOF)
}
