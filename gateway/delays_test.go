package gateway

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDelaysGrowAndDecay(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	now := time.Unix(1764536000, 0)
	var d delays
	for i, tt := range []struct {
		after  time.Duration
		source netip.Addr
		want   time.Duration
	}{
		{0, a, 0}, {0, a, ms(50)}, {0, a, ms(100)}, {0, a, ms(200)}, {0, a, ms(400)}, {0, a, ms(800)}, {0, a, ms(1600)},
		{0, a, 2 * time.Second}, {0, a, 2 * time.Second}, {0, a, 2 * time.Second}, // and no longer
		{0, b, 0}, // another source pays for itself
		{delayDecay, a, ms(1600)},
		{0, a, 2 * time.Second},
		{3 * delayDecay, a, ms(400)},
		{delayDecay - 1, a, ms(800)},
		{100 * delayDecay, a, 0},
		{0, a, ms(50)},
		{0, b, 0},
	} {
		now = now.Add(tt.after)
		assert.Equal(t, tt.want, d.next(tt.source, now), "refusal %d", i)
	}
}

func TestDelaysRememberTheLatestSources(t *testing.T) {
	now := time.Unix(1764536000, 0)
	source := func(n int) netip.Addr {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(10<<24+n))))
	}
	var d delays
	for n := range 3 * maxDelays {
		d.next(source(0), now) // it goes on all the time
		d.next(source(n+1), now)
	}
	require.Len(t, d.of, maxDelays)
	require.Equal(t, maxDelays, d.recent.Len())
	assert.Equal(t, longestDelay, d.next(source(0), now), "the latest are remembered")
	assert.NotZero(t, d.next(source(3*maxDelays), now))
	assert.Zero(t, d.next(source(1), now), "the oldest are not")
}

// offend has a source wait the longest for its next refusals.
func (r *rig) offend(source string) {
	for range delaySteps {
		r.server.delays.next(netip.MustParseAddr(source), time.Now())
	}
}

func (r *rig) parked(n int) {
	r.t.Helper()
	r.eventually("parked", func() bool {
		s := r.server.slots
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.parked.Len() == n
	})
}

func forged() []byte { return []byte(`{"rank": 1}`) }

// TestRefusalsAreDelayed: a source that presents bad credentials waits ever longer for its answers, whatever was wrong
// with them. Its good ones are not delayed, and nobody misses a slot.
func TestRefusalsAreDelayed(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	bad := func() *client { return r.dial().hello(forged(), nil) }
	worse := func() *client { return r.dial().say([]byte(`{"agent": 1}` + "\n")) }
	for i, present := range []func() *client{bad, worse, bad, worse, bad} {
		start := time.Now()
		c := present()
		assert.Equal(t, refused, c.line())
		assert.GreaterOrEqual(t, time.Since(start), []time.Duration{0, 50, 100, 200, 400}[i]*time.Millisecond, "refusal %d", i+1)
	}
	r.parked(0) // the answer is there a little earlier
	r.offend("127.0.0.1")
	late := bad()
	r.parked(1)
	assert.Zero(t, r.server.slots.inUse(), "it has no slot")
	start := time.Now()
	r.join(w, 0, 0, "7")
	r.join(w, 0, 1, "7")
	assert.Less(t, time.Since(start), longestDelay, "good ones are not delayed")
	assert.Equal(t, refused, late.line())
	r.parked(0)
}

// TestDelayedRefusalsYield: where their places are wanted, the refused have their answers at once.
func TestDelayedRefusalsYield(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pending, c.PerSource = 2, 2 }).serve()
	w := r.create(1)
	r.offend("127.0.0.1")
	first := r.dial().hello(forged(), nil)
	r.parked(1)
	second := r.dial().hello(forged(), nil)
	r.parked(2)
	start := time.Now()
	third := r.dial()
	assert.Equal(t, refused, first.line(), "the same words")
	fourth := r.dial()
	assert.Equal(t, refused, second.line())
	assert.Less(t, time.Since(start), longestDelay)
	third.hello(w.lines[0][0], agentOf("7", "a")).admitted()
	fourth.conn.Close()
	r.eventually("counted", func() bool { return r.server.counters.snapshot(r.server.slots).Rejected["malformed"] == 2 })
	assert.Zero(t, r.server.counters.evicted.Load(), "they were refused, not evicted")
	r.noSlotTaken()
}

// TestDelayEndsBeforeTheDeadline: a refused peer always has its answer.
func TestDelayEndsBeforeTheDeadline(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Handshake = time.Second }).serve()
	r.offend("127.0.0.1")
	assert.Equal(t, refused, r.dial().hello(forged(), nil).line())
}

func TestStopEndsDelays(t *testing.T) {
	r := newRig(t).serve()
	r.offend("127.0.0.1")
	c := r.dial().hello(forged(), nil)
	r.parked(1)
	start := time.Now()
	r.halt()
	assert.Less(t, time.Since(start), longestDelay)
	assert.Error(t, c.ended())
	r.parked(0)
}
