package gateway

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/gateway/wire"
)

// loadVariable makes of the test program a process that is the ranks of a gang and nothing else, so that what the
// gateway takes can be told from what they take. It names a file with a load.
const loadVariable = "O4S_TEST_LOAD"

// load is a gang that dials in.
type load struct {
	Addr   string
	Plain  bool // without TLS
	Hellos [][]byte
	AtOnce int // how many dial at a time; 0: all

	Started func() `json:"-"` // nil, or called when the process is there
}

// arrived is what became of it, told in a line once all are through. They stay connected until standard input ends.
type arrived struct {
	Registered, Refused, Retries int
	Took                         time.Duration
}

// patience is how long a rank tries.
const loadPatience = 2 * time.Minute

func generate(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var l load
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	if err := allDescriptors(); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(l.run()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (l load) run() (a arrived) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	atOnce := l.AtOnce
	if atOnce == 0 {
		atOnce = len(l.Hellos)
	}
	turns := make(chan struct{}, atOnce)
	began := time.Now()
	for _, hello := range l.Hellos {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			refused, retries := l.register(hello, began.Add(loadPatience))
			mu.Lock()
			defer mu.Unlock()
			a.Retries += retries
			switch {
			case refused:
				a.Refused++
			case retries >= 0:
				a.Registered++
			}
		})
	}
	wg.Wait()
	a.Took = time.Since(began)
	return a
}

// register dials as an agent does: again with a growing, random pause, unless it is refused. retries < 0: never.
func (l load) register(hello []byte, until time.Time) (refused bool, retries int) {
	pause := 100 * time.Millisecond
	for ; time.Now().Before(until); retries++ {
		ok, err := l.dial(hello)
		if err == nil {
			return !ok, retries
		}
		time.Sleep(pause/2 + rand.N(pause))
		pause = min(pause*17/10, 5*time.Second)
	}
	return false, -1
}

// kept holds the connections: one that nobody refers to is closed.
var kept sync.Map

func (l load) dial(hello []byte) (ok bool, err error) {
	raw, err := net.DialTimeout("tcp", l.Addr, 30*time.Second)
	if err != nil {
		return false, err
	}
	conn := raw
	if !l.Plain {
		conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}})
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return false, err
	}
	if _, err = conn.Write(hello); err == nil {
		var a wire.Answer
		if a, err = wire.ReadAnswer(bufio.NewReader(conn)); err == nil && a.OK {
			kept.Store(conn, raw)
			return true, conn.SetDeadline(time.Time{})
		}
	}
	raw.Close()
	return false, err
}

func allDescriptors() error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return err
	}
	lim.Cur = lim.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &lim)
}

// dialIn has the ranks of a load dial in from a process of their own, and returns once they are through. leave ends them.
func (l load) dialIn(t testing.TB) (a arrived, leave func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "load")
	text, err := json.Marshal(l)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), loadVariable+"="+path)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	if l.Started != nil {
		l.Started()
	}
	leave = sync.OnceFunc(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(leave)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(line, &a))
	return a, leave
}

// hellosOf are the hello lines of all ranks of a workload's first epoch.
func hellosOf(t testing.TB, w *workload) [][]byte {
	t.Helper()
	hellos := make([][]byte, len(w.lines[0]))
	for i := range hellos {
		h, err := wire.AppendHello(w.lines[0][i], *agentOf("7", fmt.Sprint(i)))
		require.NoError(t, err)
		hellos[i] = h
	}
	return hellos
}
