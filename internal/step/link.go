package step

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// link is one TCP connection with the contract's clocks on it (section 15). Until ready, one absolute deadline
// covers everything; afterwards each read and each write may be silent for so long. It lies beneath TLS, so that
// closing it ends a blocked handshake, read or write at once. One goroutine uses it at a time; any may close it.
type link struct {
	net.Conn
	raw         syscall.RawConn // nil: the connection tells nothing of what the peer took
	release     func() bool     // takes the closing at the context's end back
	established bool
	read, write time.Duration
	readUntil   time.Time // absolute bound over the silences; zero: none
	sent, taken int64     // bytes written, and of them acknowledged by the peer's kernel when last asked
	closeOnce   sync.Once
}

// newLink closes the connection when ctx ends, whoever waits on it then.
func newLink(ctx context.Context, c net.Conn, establishBy time.Time) *link {
	l := &link{Conn: c}
	if s, ok := c.(syscall.Conn); ok {
		l.raw, _ = s.SyscallConn() // without it silence is measured by our own reads and writes alone
	}
	_ = c.SetDeadline(establishBy) // fails only on a closed connection, as the next read will
	l.release = context.AfterFunc(ctx, l.shut)
	return l
}

func (l *link) ready(read, write time.Duration) {
	l.established, l.read, l.write = true, read, write
	_ = l.SetDeadline(time.Time{})
}

// readWithin bounds all reads from now on by d in all, above the silence of each.
func (l *link) readWithin(d time.Duration) { l.readUntil = time.Now().Add(d) }

// Read waits while the peer still takes what was sent: as long as megabytes lie in the kernel's buffer, an answer
// can't come, and that is no silence.
func (l *link) Read(p []byte) (int, error) {
	if !l.established {
		return l.Conn.Read(p)
	}
	alive := time.Now()
	for {
		until := alive.Add(l.read)
		if !l.readUntil.IsZero() && l.readUntil.Before(until) {
			until = l.readUntil
		}
		_ = l.SetReadDeadline(earlier(until, time.Now().Add(silenceLook)))
		n, err := l.Conn.Read(p)
		if n > 0 || err == nil || !timedOut(err) {
			return n, err
		}
		now := time.Now()
		if l.tookMore() {
			alive = now
		} else if !now.Before(until) {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// Write goes on as long as the peer takes something within each spell of silence: a slow store is not a dead one.
// What it takes is asked of the kernel, whose buffer swallows megabytes at once and then nothing for long.
func (l *link) Write(p []byte) (int, error) {
	if !l.established {
		n, err := l.Conn.Write(p)
		l.sent += int64(n)
		return n, err
	}
	total := 0
	alive := time.Now()
	for {
		_ = l.SetWriteDeadline(earlier(alive.Add(l.write), time.Now().Add(silenceLook)))
		n, err := l.Conn.Write(p[total:])
		total += n
		l.sent += int64(n)
		if err == nil || !timedOut(err) {
			return total, err
		}
		now := time.Now()
		if l.tookMore() {
			alive = now
		} else if now.Sub(alive) >= l.write {
			return total, os.ErrDeadlineExceeded
		}
	}
}

// tookMore reports whether the peer acknowledged more than when last asked.
func (l *link) tookMore() bool {
	if l.raw == nil {
		return false
	}
	queued, err := 0, error(nil)
	if controlErr := l.raw.Control(func(fd uintptr) {
		queued, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	}); controlErr != nil || err != nil {
		return false
	}
	taken := l.sent - int64(queued)
	more := taken > l.taken
	l.taken = max(taken, l.taken)
	return more
}

func (l *link) shut() { l.closeOnce.Do(func() { _ = l.Conn.Close() }) }

// Close closes the connection without the farewell that TLS would wait for.
func (l *link) Close() error {
	l.release()
	l.shut()
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
