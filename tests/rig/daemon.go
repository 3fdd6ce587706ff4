package rig

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai4s/hpc/tests/cluster"
)

// stopWithin is how long a daemon may take to leave after TERM; it promises five seconds.
const stopWithin = 8 * time.Second

// Daemon is the rig's openai4s-gateway.
type Daemon struct {
	rig     *Rig
	account account

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{} // closed when it was reaped
}

func newDaemon(t testing.TB, r *Rig) *Daemon {
	t.Helper()
	d := &Daemon{rig: r, account: r.account(t, cluster.Service)}
	dir := filepath.Dir(r.State())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, d.account.uid, d.account.gid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Stop(t) })
	return d
}

// LogFile is where its standard error goes, all its lives one after the other.
func (d *Daemon) LogFile() string { return filepath.Join(d.rig.Dir, "daemon.log") }

// AuditFile is its audit log.
func (d *Daemon) AuditFile() string { return filepath.Join(d.rig.State(), "audit.log") }

// Start starts it and returns once it answers on its control socket.
func (d *Daemon) Start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(d.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(d.rig.Program("openai4s-gateway"), "--site", d.rig.Site)
	d.account.dress(cmd)
	home := filepath.Dir(d.rig.State())
	if !d.rig.manyUsers() { // one user's daemon: it must find that user's local jobs
		home = d.rig.Alice(t).Home
	}
	cmd.Env = append(d.rig.environment(d.account.name, home), d.rig.options.Env...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting the daemon: %v", err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	d.mu.Lock()
	d.cmd, d.gone = cmd, gone
	d.mu.Unlock()
	Await(t, 15*time.Second, "the daemon to answer on its control socket", func() bool {
		select {
		case <-gone:
			t.Fatalf("the daemon ended instead of serving (%s):\n%s", cmd.ProcessState, tail(d.LogFile()))
		default:
		}
		conn, err := net.Dial("unix", d.rig.control())
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
}

// Pin is what its own command says of its key.
func (d *Daemon) Pin(t testing.TB) string {
	t.Helper()
	cmd := exec.Command(d.rig.Program("openai4s-gateway"), "--site", d.rig.Site, "pin")
	d.account.dress(cmd)
	cmd.Env = d.rig.environment(d.account.name, filepath.Dir(d.rig.State()))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("asking for the pin: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// PID of the running daemon; 0 where none runs.
func (d *Daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

// Stop ends it by TERM and holds it to its promise of leaving soon, with exit code 0. One that isn't up is left alone.
func (d *Daemon) Stop(t testing.TB) {
	t.Helper()
	state := d.end(t, syscall.SIGTERM)
	if state != nil && state.ExitCode() != 0 {
		t.Errorf("the daemon ended with %s:\n%s", state, tail(d.LogFile()))
	}
}

// Kill ends it as a crash does.
func (d *Daemon) Kill(t testing.TB) {
	t.Helper()
	d.end(t, syscall.SIGKILL)
}

// Signal sends it one.
func (d *Daemon) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(d.PID(), s); err != nil {
		t.Fatalf("signalling the daemon: %v", err)
	}
}

func (d *Daemon) end(t testing.TB, s syscall.Signal) *os.ProcessState {
	t.Helper()
	d.mu.Lock()
	cmd, gone := d.cmd, d.gone
	d.cmd = nil
	d.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("signalling the daemon: %v", err)
	}
	select {
	case <-gone:
	case <-time.After(stopWithin):
		_ = cmd.Process.Kill() // it may be gone by now
		<-gone
		t.Errorf("the daemon didn't leave within %s of %s", stopWithin, s)
	}
	return cmd.ProcessState
}

// freePort finds a port below the kernel's own range, so that no outgoing connection takes it while the daemon is down.
func freePort(t testing.TB) int {
	t.Helper()
	for port := 8800 + os.Getpid()%4000; port < 16000; port++ {
		if _, taken := ports.LoadOrStore(port, true); taken {
			continue
		}
		if !reserve(port) {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port below 16000")
	return 0
}

// reserve keeps a port from the rigs of other test processes for as long as this one lives, also while its daemon is
// down: the lock ends with the process.
func reserve(port int) bool {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("o4s-port-%d.lock", port)), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return false
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return false
	}
	reserved.Store(port, f) // closing it would give the port back
	return true
}

var reserved sync.Map

// ports were handed out in this process.
var ports sync.Map
