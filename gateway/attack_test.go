package gateway

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// attackEnv makes this test binary an attack, in a process of its own: its peers are not to cost the gateway memory or
// descriptors. Its value is an attack as JSON.
const attackEnv = "O4S_ATTACK"

// attack is many hostile peers from a few addresses. Each comes back a while after it was thrown out.
type attack struct {
	Addr    string
	Sources []string
	Peers   int
	Away    time.Duration // how long a peer stays away, on average

	hello []byte       // a TLS client's first flight
	came  atomic.Int64 // peers that have dialled
}

// kinds of peers: each does its worst until the gateway closes its connection.
var kinds = []func(a *attack, c net.Conn){
	func(_ *attack, c net.Conn) { listen(c) }, // says nothing
	func(a *attack, c net.Conn) { // dribbles a TLS client's hello
		for _, b := range a.hello {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	},
	func(_ *attack, c net.Conn) { say(c, []byte("GET / HTTP/1.1\r\n\r\n")) },                 // garbage
	func(_ *attack, c net.Conn) { say(tls.Client(c, attackTLS), []byte("{\"rank\": 1}\n")) }, // garbage in TLS
	func(a *attack, c net.Conn) { say(c, a.hello) },                                          // stalls in TLS
	func(_ *attack, c net.Conn) { // stalls after TLS
		t := tls.Client(c, attackTLS)
		if t.Handshake() == nil {
			listen(t)
		}
	},
}

var attackTLS = &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}}

func listen(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func say(c net.Conn, b []byte) {
	if _, err := c.Write(b); err == nil {
		listen(c)
	}
}

// clientHello is what a TLS client sends first.
func clientHello() []byte {
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, attackTLS).Handshake() // ends with the pipe
		near.Close()
	}()
	hello := make([]byte, 4096)
	n, _ := far.Read(hello)
	far.Close()
	return hello[:n]
}

// attackMain is the attack's process. It says a line once every peer has come, and ends with its standard input.
func attackMain(spec string) error {
	var a attack
	if err := json.Unmarshal([]byte(spec), &a); err != nil {
		return err
	}
	a.hello = clientHello()
	for i := range a.Peers {
		go a.peer(i)
	}
	go func() {
		for a.came.Load() < int64(a.Peers) {
			<-time.After(10 * time.Millisecond)
		}
		fmt.Println("all came")
	}()
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func (a *attack) peer(i int) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.Sources[i%len(a.Sources)])}, KeepAlive: -1}
	<-time.After(rand.N(a.Away))
	for first := true; ; {
		if c, err := d.Dial("tcp", a.Addr); err == nil {
			if first {
				a.came.Add(1)
				first = false
			}
			kinds[i/len(a.Sources)%len(kinds)](a, c)
			c.Close()
		}
		<-time.After(a.Away/2 + rand.N(a.Away))
	}
}

// start runs the attack until the returned function is called. Every peer has come by then.
func (a *attack) start(t testing.TB) (halt func()) {
	t.Helper()
	spec, err := json.Marshal(a)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), attackEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	halt = func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("attacking: %v", err)
		}
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		halt()
		t.Fatalf("the attack didn't begin: %v", err)
	}
	return halt
}

// needDescriptors raises the limit of this process and its children, and skips where that isn't enough.
func needDescriptors(t testing.TB, need uint64) {
	raiseLimit(t)
	var lim unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &lim))
	if lim.Cur < need {
		t.Skipf("%d descriptors are needed and %d allowed: raise the hard limit (ulimit -Hn)", need, lim.Cur)
	}
}
