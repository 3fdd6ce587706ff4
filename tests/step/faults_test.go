package step_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// on gives a fault for request number n of a kind; n 0 is every one.
func on(kind string, n int, do func(s *store, w http.ResponseWriter, r *http.Request) bool) fault {
	return func(s *store, k, _ string, i int, w http.ResponseWriter, r *http.Request) bool {
		return k == kind && (n == 0 || n == i) && do(s, w, r)
	}
}

// named gives a fault for every upload of one name.
func named(name string, do func(s *store, w http.ResponseWriter, r *http.Request) bool) fault {
	return func(s *store, k, got string, _ int, w http.ResponseWriter, r *http.Request) bool {
		return k == "upload" && got == name && do(s, w, r)
	}
}

// answer refuses with a status and a store's code.
func answer(status int, code string) func(*store, http.ResponseWriter, *http.Request) bool {
	return func(s *store, w http.ResponseWriter, _ *http.Request) bool {
		if status/100 == 3 {
			w.Header().Set("Location", s.server.URL+"/in/followed?tok="+signature(1, "followed"))
		}
		if code == "" {
			w.WriteHeader(status)
			return true
		}
		s.reject(w, status, code, "by order")
		return true
	}
}

// raw writes an answer byte by byte as it stands and closes the connection, with a reset if asked for.
func raw(text string, reset bool) func(*store, http.ResponseWriter, *http.Request) bool {
	return func(s *store, w http.ResponseWriter, r *http.Request) bool {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return false
		}
		_, _ = io.WriteString(c, text)
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		_ = c.Close()
		return true
	}
}

// dribble sends head and then a byte each pause until the test is over or the other side went.
func dribble(head string, pause time.Duration) func(*store, http.ResponseWriter, *http.Request) bool {
	return func(s *store, w http.ResponseWriter, r *http.Request) bool {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return false
		}
		defer c.Close()
		text := head
		for {
			if _, err := io.WriteString(c, text); err != nil {
				return true
			}
			text = "x"
			select {
			case <-s.gone:
				return true
			case <-time.After(pause):
			}
		}
	}
}

// hold lets the request go on after d.
func hold(d time.Duration) func(*store, http.ResponseWriter, *http.Request) bool {
	return func(s *store, _ http.ResponseWriter, _ *http.Request) bool {
		select {
		case <-time.After(d):
		case <-s.gone:
		}
		return false
	}
}

// never answers; the object of an upload lands all the same.
func never(s *store, w http.ResponseWriter, r *http.Request) bool {
	<-s.gone
	return true
}

// stall is a peer that accepts, reads what comes first, says what it has to say, later, and then nothing more.
type stall struct {
	listener net.Listener
	heard    chan string // the first line, or what there is of one, of each connection
}

func newStall(t *testing.T, later time.Duration, says string) *stall {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &stall{listener: l, heard: make(chan string, 16)}
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone); _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				first := make([]byte, 4096)
				n, err := c.Read(first)
				if err != nil {
					return
				}
				line, _, _ := strings.Cut(string(first[:n]), "\r\n")
				s.heard <- line
				select {
				case <-time.After(later):
					_, _ = io.WriteString(c, says)
				case <-gone:
				}
				<-gone
			}()
		}
	}()
	return s
}

func (s *stall) addr() string { return s.listener.Addr().String() }

func (s *stall) await(t *testing.T) string {
	t.Helper()
	select {
	case line := <-s.heard:
		return line
	case <-time.After(20 * time.Second):
		t.Fatal("nobody came")
		return ""
	}
}

// narrowWay leads to a store. It takes so many bytes of the first connection, and the rest once it is open.
type narrowWay struct {
	listener net.Listener
	full     chan struct{}
	open     chan struct{}
}

func newNarrowWay(t *testing.T, store string, takes int64) *narrowWay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &narrowWay{l, make(chan struct{}), make(chan struct{})}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for n := 0; ; n++ {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				to, err := net.Dial("tcp", store)
				if err != nil {
					return
				}
				defer to.Close()
				go func() {
					if n == 0 {
						_, _ = io.CopyN(to, from, takes)
						close(w.full)
						<-w.open
					}
					_, _ = io.Copy(to, from)
					_ = to.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
	return w
}

func (w *narrowWay) await(t *testing.T) {
	t.Helper()
	select {
	case <-w.full:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody came")
	}
}

// deaf listens on an address whose queue is full: packets of further connections are dropped in silence.
func deaf(t *testing.T, ip [4]byte, port int) (addr string, waiting func() bool) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: ip, Port: port}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	addr = fmt.Sprintf("%s:%d", net.IP(ip[:]), name.(*syscall.SockaddrInet4).Port)
	for range 8 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr, func() bool { return connecting(addr) }
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue of a listener never filled")
	return "", nil
}

// connecting looks for a connection to addr that waits for its first answer, in /proc/net/tcp.
func connecting(addr string) bool {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	ip := net.ParseIP(host).To4()
	want := fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], n)
	table, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.SplitSeq(string(table), "\n") {
		if f := strings.Fields(line); len(f) > 3 && f[2] == want && f[3] == "02" {
			return true
		}
	}
	return false
}

// anyRequest gives a fault for whatever it is asked about.
func anyRequest(do func(s *store, w http.ResponseWriter, r *http.Request) bool) fault {
	return func(s *store, _, _ string, _ int, w http.ResponseWriter, r *http.Request) bool { return do(s, w, r) }
}
