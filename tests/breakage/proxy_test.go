package breakage_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// fault is what the proxy does to one connection at one TLS record.
type fault struct {
	toGateway bool // at a record on its way to the gateway, else to the agent
	record    int  // the first is 1
	kind      faultKind
}

type faultKind int

const (
	cutBefore faultKind = iota // the record never leaves, and the connection ends
	cutAfter                   // it arrives, and the connection ends
	halve                      // half of it arrives
	stall                      // it comes a second late, and then the connection ends
	delay                      // it comes late
	crash                      // it never leaves, and the gateway dies at this moment
)

// proxy stands between agents and the gateway and breaks their connections, one after the other, as it is told.
type proxy struct {
	ln     net.Listener
	target atomic.Value // string
	plan   func(connection int) (fault, bool)
	done   func(f fault, met bool) // nil, or told when a faulty connection is over
	crash  func()                  // kills the gateway
	count  atomic.Int64
	wg     sync.WaitGroup
}

func newProxy(t *testing.T, plan func(int) (fault, bool)) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{ln: ln, plan: plan}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		agent, err := p.ln.Accept()
		if err != nil {
			return
		}
		target, _ := p.target.Load().(string)
		gateway, err := net.Dial("tcp", target)
		if err != nil {
			agent.Close()
			continue
		}
		f, faulty := p.plan(int(p.count.Add(1)))
		var once sync.Once
		end := func() { once.Do(func() { agent.Close(); gateway.Close() }) }
		way := func(to io.Writer, from io.Reader, faulty bool) {
			defer end()
			met := p.forward(to, from, f, faulty, end)
			if faulty && p.done != nil {
				p.done(f, met)
			}
		}
		p.wg.Go(func() { way(gateway, agent, faulty && f.toGateway) })
		p.wg.Go(func() { way(agent, gateway, faulty && !f.toGateway) })
	}
}

// forward passes TLS records on, whole ones, and breaks the connection at the fault's. It tells whether it came to that.
func (p *proxy) forward(to io.Writer, from io.Reader, f fault, faulty bool, end func()) bool {
	head := make([]byte, 5)
	for n := 1; ; n++ {
		if _, err := io.ReadFull(from, head); err != nil {
			return false
		}
		record := append([]byte{}, head...)
		record = append(record, make([]byte, binary.BigEndian.Uint16(head[3:]))...)
		if _, err := io.ReadFull(from, record[5:]); err != nil {
			return false
		}
		hit := faulty && n == f.record
		if hit {
			switch f.kind {
			case cutBefore:
				return true
			case crash:
				p.crash()
				return true
			case halve:
				record = record[:len(record)/2]
			case stall, delay:
				<-time.After(time.Second)
			}
		}
		if _, err := to.Write(record); err != nil {
			return hit
		}
		if hit && f.kind != delay {
			end()
			return true
		}
	}
}

// TestCutAtEveryMessage: whatever message of a run the connection breaks at, every rank is back in its place and the
// run completes. A record is a message here: everything is sent whole.
func TestCutAtEveryMessage(t *testing.T) {
	const records, kinds = 12, 5
	var faults []fault
	for record := 1; record <= records; record++ {
		for kind := range faultKind(kinds) {
			faults = append(faults, fault{true, record, kind}, fault{false, record, kind})
		}
	}
	// A run of 4 ranks meets some of them; several runs meet them all.
	const runs = 6
	var next atomic.Int64
	p := newProxy(t, func(int) (fault, bool) {
		i := int(next.Add(1)) - 1
		if i >= len(faults) {
			return fault{}, false
		}
		return faults[i], true
	})
	r := newRig(t, rig.Options{Advertise: []string{p.ln.Addr().String()}})
	p.target.Store(fmt.Sprintf("127.0.0.1:%d", r.Port))
	alice := r.Alice(t)
	for run := 0; run < runs || int(next.Load()) < len(faults); run++ {
		require.Less(t, run, 60, "the faults were never all met")
		id := alice.Submit(t, rig.Shell(4, "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done; echo end", ""))
		w := alice.AwaitEnd(t, id)
		require.Equal(t, "COMPLETED", w.Phase(), "run %d, %d faults met: %s", run, next.Load(), w)
		require.Equal(t, 4, w.Int("ranks", "exited"), "%s", w)
		awaitOutput(t, alice, id, "end", 4)
	}
}
