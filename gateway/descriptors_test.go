package gateway

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNoDescriptorsLeft: ranks that come while the process has no descriptor left wait or come back; none is refused,
// nothing is admitted twice, and the log says why nobody got in.
func TestNoDescriptorsLeft(t *testing.T) {
	var log lockedBuffer
	r := newRig(t)
	r.server.log = zerolog.New(&log)
	r.serve()
	const ranks = 64
	w := r.create(ranks + 1)
	hellos := hellosOf(t, w)[:ranks]

	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	restore := sync.OnceFunc(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) })
	defer restore()
	done := make(chan arrived, 1)
	started := make(chan struct{})
	go func() {
		a, _ := load{Addr: r.addr, Hellos: hellos, Started: func() { close(started) }}.dialIn(t)
		done <- a
	}()
	<-started
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open) + ranks/4), Max: before.Max}))
	r.eventually("the descriptors to be used up", func() bool { return log.contains("too many open files") })
	require.True(t, log.contains("no connection can be accepted"))
	require.Less(t, r.server.counters.accepted.Load(), uint64(ranks))
	restore()
	a := <-done
	require.Equal(t, ranks, a.Registered, "%+v", a)
	require.Zero(t, a.Refused)
	r.eventually("each to be there once", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.peers) == ranks
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.b.Bytes(), []byte(text))
}
