package step

import (
	"context"
	"net"
	"sync"
	"time"
)

// link is one TCP connection with the contract's clocks on it (section 15). Until ready, one absolute deadline
// covers everything; afterwards each read and each write may be silent for so long. It lies beneath TLS, so that
// closing it ends a blocked handshake, read or write at once.
type link struct {
	net.Conn
	mu            sync.Mutex
	established   bool
	read, write   time.Duration
	readUntil     time.Time // absolute bound over the silences; zero: none
	stopAbandoned func() bool
}

// newLink closes the connection when ctx ends, whoever waits on it then.
func newLink(ctx context.Context, c net.Conn, establishBy time.Time) *link {
	l := &link{Conn: c}
	_ = c.SetDeadline(establishBy) // fails only on a closed connection, as the next read will
	l.stopAbandoned = context.AfterFunc(ctx, func() { _ = c.Close() })
	return l
}

func (l *link) ready(read, write time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.established, l.read, l.write = true, read, write
}

// readWithin bounds all reads from now on by d in all, above the silence of each.
func (l *link) readWithin(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readUntil = time.Now().Add(d)
}

func (l *link) Read(p []byte) (int, error) {
	l.mu.Lock()
	if l.established {
		until := time.Now().Add(l.read)
		if !l.readUntil.IsZero() && l.readUntil.Before(until) {
			until = l.readUntil
		}
		_ = l.Conn.SetReadDeadline(until)
	}
	l.mu.Unlock()
	return l.Conn.Read(p)
}

// Write goes on as long as each spell of silence ends with some bytes taken: a slow store is not a dead one.
func (l *link) Write(p []byte) (int, error) {
	total := 0
	for {
		l.mu.Lock()
		established := l.established
		if established {
			_ = l.Conn.SetWriteDeadline(time.Now().Add(l.write))
		}
		l.mu.Unlock()
		n, err := l.Conn.Write(p[total:])
		total += n
		if err == nil || n == 0 || !established || !timedOut(err) {
			return total, err
		}
	}
}

func (l *link) Close() error {
	l.stopAbandoned()
	return l.Conn.Close()
}
