package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
)

// A gang as wide as the bound dials at once and nobody is refused.
func TestGangAsWideAsTheBound(t *testing.T) {
	const size = 64
	r := newRig(t, func(c *Config) { c.Pending, c.PerSource = size, 1 }).serve()
	w := r.create(size)
	// All hold their slots before the first says its hello: the source's own bound would refuse 63 of them elsewhere,
	// but 127.0.0.1 is exempt.
	clients := make([]*client, size)
	for i := range clients {
		clients[i] = r.dial()
	}
	r.eventually("all slots taken", func() bool { return r.server.slots.inUse() == size })

	late := r.plainTCP()
	assert.Error(t, late.ended(), "one more is closed at once")
	verdict, _ := r.lastDialIn(1)
	assert.Equal(t, "busy", verdict)

	for i, c := range clients {
		c.hello(w.lines[0][i], agentOf("7", string(rune('A'+i))))
	}
	for _, c := range clients {
		c.admitted()
	}
	r.eventually("released", func() bool { return w.view().Phase == "ACTIVE" })
	r.eventually("all counted", func() bool { return r.server.counters.accepted.Load() == size })
	h := r.server.counters.snapshot(r.server.slots)
	assert.Equal(t, uint64(1), h.RefusedBusy)
	assert.Zero(t, h.RefusedSource)
	r.noSlotTaken()
}

// flaky is a listener whose Accept fails a few times first.
type flaky struct {
	net.Listener
	mu   sync.Mutex
	errs []error
	at   []time.Time
}

func (f *flaky) Accept() (net.Conn, error) {
	f.mu.Lock()
	f.at = append(f.at, time.Now())
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		f.mu.Unlock()
		return nil, err
	}
	f.mu.Unlock()
	return f.Listener.Accept()
}

func TestAcceptGoesOnAfterErrors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	emfile := &net.OpError{Op: "accept", Err: syscall.EMFILE}
	f := &flaky{Listener: ln, errs: []error{emfile, emfile, emfile, syscall.ECONNABORTED}}
	r := newRig(t)
	r.addr = ln.Addr().String()
	r.serveOn(f)
	w := r.create(1)
	r.join(w, 0, 0, "7")
	f.mu.Lock()
	defer f.mu.Unlock()
	require.GreaterOrEqual(t, len(f.at), 5)
	assert.GreaterOrEqual(t, f.at[3].Sub(f.at[2]), 20*time.Millisecond, "it pauses, and longer each time")
}

func TestStop(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(3)
	silent := r.plainTCP()
	half := r.dial()
	rank, _ := r.join(w, 0, 0, "7")
	r.eventually("two handshakes", func() bool { return r.server.slots.inUse() == 2 })
	start := time.Now()
	r.halt()
	assert.Less(t, time.Since(start), stopWait)
	for _, c := range []*client{silent, half, rank} {
		assert.Error(t, c.ended())
	}
	accepted := r.server.counters.accepted.Load()
	assert.Empty(t, half.hello(w.lines[0][1], nil).line())
	_, err := net.Dial("tcp", r.addr)
	assert.Error(t, err)
	assert.Equal(t, accepted, r.server.counters.accepted.Load())
	assert.Equal(t, 0, w.view().Ranks.Live)

	// The same server serves again: what was not presented is still good.
	r.serve()
	c := r.dial().hello(w.lines[0][1], agentOf("7", "b"))
	c.admitted()
	r.eventually("registered", func() bool { return w.view().Ranks.Live == 1 })
}

// A peer on a connection in memory, so that time can be faked.
func TestDeadlineIsOneOverEverything(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Handshake, c.TLSMode, c.Pending = 30*time.Second, "off", 1 })
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 1)
		server := &Server{cfg: r.server.cfg, gate: r.gate, fence: r.fence, audit: r.audit, log: zerolog.Nop(), slots: s, conns: map[net.Conn]bool{}}
		near, far := net.Pipe()
		start := time.Now()
		over := make(chan struct{})
		go func() {
			slot, d, ok := server.seat(far)
			assert.True(t, ok)
			server.serveConn(t.Context(), far, slot, d)
			close(over)
		}()
		// One byte every 10 s: a deadline for each read would never come.
		for range 2 {
			<-time.After(10 * time.Second)
			_, err := near.Write([]byte("x"))
			require.NoError(t, err)
		}
		<-over
		assert.Equal(t, 30*time.Second, time.Since(start))
		assert.Equal(t, uint64(1), server.counters.timedOut.Load())
		assert.Zero(t, s.inUse())
		near.Close()
	})
}

func TestAcceptedPeerHasNoDeadline(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Handshake = 2 * time.Second }).serve()
	w := r.create(2)
	c, _ := r.join(w, 0, 0, "7")
	start := time.Now()
	r.eventually("the deadline is past", func() bool { return time.Since(start) > 3*time.Second })
	c.send(wire.Status, wire.StatusReport{Seq: 1, State: "started"})
	c.until(wire.Ack, new(wire.AckOrder))
	assert.Equal(t, 1, w.view().Ranks.Live)
}

func TestServeEndsWithItsContextAlone(t *testing.T) {
	r := newRig(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.NoError(t, r.server.Serve(ctx, ln))
	ln2, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln2.Close()
	assert.True(t, errors.Is(r.server.Serve(context.Background(), ln2), net.ErrClosed))
}

func TestAuditSumsUpAFlood(t *testing.T) {
	now := time.Unix(1764536000, 0)
	a, err := OpenAudit(t.TempDir(), func() time.Time { return now })
	require.NoError(t, err)
	defer a.Close()
	d := dialIn{Source: netip.MustParseAddrPort("10.0.0.1:99"), Verdict: "refused", Cause: "signature"}
	other := dialIn{Source: netip.MustParseAddrPort("10.0.0.2:99"), Verdict: "refused", Cause: "signature"}
	written := 0
	for range 50 {
		if !a.over(summed{event: "dial_in", source: d.Source.Addr()}, now) {
			written++
		}
	}
	assert.Equal(t, auditRate, written)
	assert.False(t, a.over(summed{event: "dial_in", source: other.Source.Addr()}, now), "another source is not held to it")
	a.sumUp(now)
	assert.NotEmpty(t, a.seen, "the second isn't over")
	a.sumUp(now.Add(time.Second))
	assert.Empty(t, a.seen)
}
