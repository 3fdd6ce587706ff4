package gateway

import (
	"net"
	"sync"
	"time"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway/wire"
)

const (
	// maxQueued bounds the bytes that wait for a peer that doesn't read.
	maxQueued = 4 << 20
	// writeTimeout bounds one write to a peer.
	writeTimeout = 30 * time.Second
)

// peer is one registered connection. It has one goroutine that reads; a second one exists only while something is
// written.
type peer struct {
	conn  net.Conn
	rank  int
	epoch int64
	claim credential.Claim
	agent *wire.Agent // nil: the bare socket

	mu      sync.Mutex
	queue   []byte
	writing bool
	closed  bool
	used    bool
}

// send queues a frame. A peer that lets maxQueued bytes wait is closed: its agent comes back.
func (p *peer) send(f wire.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.queue = f.Append(p.queue)
	if len(p.queue) > maxQueued {
		p.closed = true
		p.conn.Close()
		return
	}
	if !p.writing {
		p.writing = true
		go p.drain()
	}
}

func (p *peer) drain() {
	for {
		p.mu.Lock()
		out := p.queue
		p.queue = nil
		if len(out) == 0 || p.closed {
			p.writing = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		_ = p.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := p.conn.Write(out); err != nil {
			p.close()
		}
	}
}

// order sends a JSON frame. Payloads of ours always marshal and fit, except a start order that is too large, which
// Create refuses.
func (p *peer) order(t wire.Type, payload any) {
	f, err := wire.JSON(t, payload)
	if err != nil {
		p.close()
		return
	}
	p.send(f)
}

func (p *peer) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.conn.Close()
}
