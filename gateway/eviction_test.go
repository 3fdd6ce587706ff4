package gateway

import (
	"bufio"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
)

// from dials an address from one of 127.0.0.0/8, all of which are this machine's own.
func (r *rig) from(source, addr string) *client {
	r.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.DialContext(r.t.Context(), "tcp", addr)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	require.NoError(r.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return &client{t: r.t, conn: c, in: bufio.NewReader(c)}
}

// quieten makes every peer that has sent nothing one that has done so for a while.
func (r *rig) quieten() {
	s := r.server.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.silent.Front(); e != nil; e = e.Next() {
		o := e.Value.(*slot)
		o.since = o.since.Add(-quietAfter)
	}
}

// TestEviction fills the slots from one address. Another one's rank is admitted all the same, and who had to go is
// counted and recorded as that.
func TestEviction(t *testing.T) {
	const bound = 4
	stalls := []byte{tlsRecord, 3, 1, 2}
	for _, tt := range []struct {
		name string
		fill string
		says [bound][]byte // what the peers say that fill the slots
		rank string
		goes int // -1: the rank does
	}{
		{"silent peers", "127.0.0.2", [bound][]byte{}, "127.0.0.3", 0},
		{"peers that stall in TLS", "127.0.0.2", [bound][]byte{stalls, stalls, stalls, stalls}, "127.0.0.3", 0},
		{"one that has sent nothing goes first", "127.0.0.2", [bound][]byte{stalls, stalls, nil, nil}, "127.0.0.3", 2},
		{"silent peers of 127.0.0.1", "127.0.0.1", [bound][]byte{}, "127.0.0.3", 0},
		{"peers of 127.0.0.1 that stall in TLS", "127.0.0.1", [bound][]byte{stalls, stalls, stalls, stalls}, "127.0.0.3", 0},
		{"peers of the rank's own address", "127.0.0.1", [bound][]byte{}, "127.0.0.1", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Pending, c.PerSource, c.TLSMode = bound, bound, "optional" }).serve()
			w := r.create(1)
			var there []*client
			silent := 0
			for i, words := range tt.says {
				there = append(there, r.from(tt.fill, r.addr).say(words))
				if len(words) == 0 {
					silent++
				}
				r.eventually("seated, and heard", func() bool {
					s := r.server.slots
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.used == i+1 && s.silent.Len() == silent
				})
			}
			rank := r.from(tt.rank, r.addr).hello(w.lines[0][0], nil)
			h := func() api.Handshakes { return r.server.counters.snapshot(r.server.slots) }
			if tt.goes < 0 {
				assert.Error(t, rank.ended())
				r.eventually("busy", func() bool { return h().RefusedBusy == 1 })
				assert.Zero(t, h().Evicted)
				return
			}
			rank.admitted()
			assert.Error(t, there[tt.goes].ended())
			r.eventually("evicted", func() bool { return h().Evicted == 1 })
			r.eventually("its slot is the rank's, and given back", func() bool { return h().InUse == bound-1 })
			verdict, _ := r.lastDialIn(1)
			if verdict == "accepted" { // whichever is recorded first
				verdict, _ = r.lastDialIn(2)
			}
			assert.Equal(t, "evicted", verdict)
			assert.Zero(t, h().TimedOut+h().RefusedBusy+h().RefusedSource)
			for _, c := range there {
				c.conn.Close()
			}
			r.noSlotTaken()
		})
	}
}

// TestQuietPeersYield: who has said nothing for a while holds up no rank of its own address either.
func TestQuietPeersYield(t *testing.T) {
	for name, source := range map[string]string{"at the bound of its address": "127.0.0.2", "at the bound of all": "127.0.0.1"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Pending, c.PerSource, c.TLSMode = 4, 2, "optional" }).serve()
			w := r.create(1)
			for range 4 {
				r.from(source, r.addr)
			}
			r.eventually("no slot is left", func() bool {
				h := r.server.counters.snapshot(r.server.slots)
				return h.InUse+int(h.RefusedSource) == 4
			})
			early := r.from(source, r.addr).hello(w.lines[0][0], nil)
			assert.Empty(t, early.line())
			r.quieten()
			r.from(source, r.addr).hello(w.lines[0][0], nil).admitted()
		})
	}
}

// TestCallersAreEvicted: the same holds for callers over TCP.
func TestCallersAreEvicted(t *testing.T) {
	r := newRig(t).serve()
	to := r.remote(fakeUnmunge(t, os.Getuid(), 60))
	var there []*client
	for range remotePending { // 127.0.0.1 has no bound of its own
		there = append(there, r.from("127.0.0.1", to.Address))
	}
	verdict := ""
	for n := 1; verdict != "evicted"; n++ {
		c := r.from("127.0.0.2", to.Address)
		defer c.conn.Close()
		verdict, _ = r.awaitCaller(n)
	}
	assert.Error(t, there[0].ended())
}
