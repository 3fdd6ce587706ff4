package agent

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/openai4s/hpc/gateway/wire"
)

const (
	// maxCopy bounds the copied output that waits for a gateway that doesn't read; more is dropped with a mark.
	maxCopy = 256 << 10
	// writeTimeout bounds one write: a gateway that reads nothing for so long is gone.
	writeTimeout = 60 * time.Second
)

// link is one admitted connection. Sending never blocks the caller.
type link struct {
	conn  net.Conn
	since time.Time

	mu      sync.Mutex
	queue   []byte
	copied  int // bytes of copied output in queue
	dropped int // bytes of copied output not sent since the last mark
	writing bool
	closed  bool
}

// send queues an order's answer; it is never dropped.
func (l *link) send(f wire.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.push(f)
}

// sendCopy queues copied output or progress, or drops it where too much waits. Dropped output is marked in the output.
func (l *link) sendCopy(f wire.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	output := f.Type == wire.Stdout || f.Type == wire.Stderr
	if l.copied+len(f.Payload) > maxCopy {
		if output {
			l.dropped += len(f.Payload)
		}
		return
	}
	if l.dropped > 0 && output {
		mark := fmt.Appendf(nil, "\n[openai4s: %d bytes dropped]\n", l.dropped)
		l.dropped = 0
		l.push(wire.Frame{Type: f.Type, Payload: mark})
	}
	l.copied += len(f.Payload)
	l.push(f)
}

func (l *link) push(f wire.Frame) {
	if l.closed {
		return
	}
	l.queue = f.Append(l.queue)
	if !l.writing {
		l.writing = true
		go l.drain()
	}
}

func (l *link) drain() {
	for {
		l.mu.Lock()
		out := l.queue
		l.queue, l.copied = nil, 0
		if len(out) == 0 || l.closed {
			l.writing = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		_ = l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := l.conn.Write(out); err != nil {
			l.close() // the reader notices
		}
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.conn.Close()
}

// flush waits until all that was queued is written, or for the given time.
func (l *link) flush(wait time.Duration) {
	end := time.Now().Add(wait)
	for time.Now().Before(end) {
		l.mu.Lock()
		idle := !l.writing || l.closed
		l.mu.Unlock()
		if idle {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
