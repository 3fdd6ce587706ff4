package gateway

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
)

// gangSources is where a gang dials from, eight ranks an address.
const gangSources = "127.77.0.0/16"

// dialGang has the ranks dial at once, and again with the agents' own pauses where they get no answer. It returns their
// connections, how long all took, and how often one had to come back.
func dialGang(t testing.TB, addr string, hellos [][]byte) (conns []net.Conn, took time.Duration, again int64) {
	t.Helper()
	conns = make([]net.Conn, len(hellos))
	errs := make([]error, len(hellos))
	var retries atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for i, hello := range hellos {
		wg.Go(func() {
			pauses := &backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 1.7, MaxInterval: 30 * time.Second}
			pauses.Reset()
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 77, byte(i/8/250), byte(i/8%250+1))}}
			for {
				var answer wire.Answer
				conns[i], answer, errs[i] = dialRank(d, addr, hello)
				if errs[i] == nil && !answer.OK {
					errs[i] = fmt.Errorf("rank %d was refused", i)
					return
				}
				if errs[i] == nil || time.Since(start) > time.Minute {
					return
				}
				retries.Add(1)
				<-time.After(pauses.NextBackOff())
			}
		})
	}
	wg.Wait()
	took = time.Since(start)
	for _, err := range errs {
		require.NoError(t, err)
	}
	return conns, took, retries.Load()
}

func dialRank(d net.Dialer, addr string, hello []byte) (net.Conn, wire.Answer, error) {
	raw, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, wire.Answer{}, err
	}
	c := tls.Client(raw, attackTLS)
	_ = raw.SetDeadline(time.Now().Add(40 * time.Second)) // as an agent does
	var answer wire.Answer
	if _, err = c.Write(hello); err == nil {
		answer, err = wire.ReadAnswer(c)
	}
	if err != nil {
		raw.Close()
		return nil, answer, err
	}
	return raw, answer, nil
}

// underAttack registers a gang on a gateway of its own while hostile peers hold every slot.
func underAttack(t testing.TB, size, hostile int, away time.Duration) (r *rig, took time.Duration, again int64) {
	t.Helper()
	r = newRig(t, func(c *Config) { c.Pending, c.PerSource, c.Handshake = size+size/4, 10, 30*time.Second }).serve()
	w := r.create(size)
	hellos := make([][]byte, size)
	for i := range hellos {
		h, err := wire.AppendHello(w.lines[0][i], *agentOf("7", fmt.Sprint(i)))
		require.NoError(t, err)
		hellos[i] = h
	}
	if hostile > 0 {
		// One of them is this machine's own address, which the bound per source doesn't hold: it takes what is left.
		a := &attack{Addr: r.addr, Sources: []string{"127.0.0.1", "127.66.0.1", "127.66.0.2", "127.66.0.3"}, Peers: hostile, Away: away}
		defer a.start(t)()
		r.eventually("every slot taken", func() bool { return r.server.slots.inUse() == size+size/4 })
	}
	conns, took, again := dialGang(t, r.addr, hellos)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	r.eventually("all registered", func() bool { return r.server.counters.accepted.Load() == uint64(size) })
	r.eventually("released", func() bool { return w.view().Phase == "ACTIVE" })
	return r, took, again
}

// TestGangUnderAttack: a gang registers while silent, dribbling, garbage-sending and stalling peers from four addresses
// hold all slots and come back whenever they are thrown out. No rank is refused.
func TestGangUnderAttack(t *testing.T) {
	const size, hostile = 128, 1200
	needDescriptors(t, hostile+200)
	r, took, again := underAttack(t, size, hostile, 2*time.Second)
	h := r.server.counters.snapshot(r.server.slots)
	t.Logf("%d ranks in %s, %d came back, %+v", size, took, again, h)
	assert.Positive(t, h.Evicted)
	assert.Positive(t, h.RefusedSource+h.RefusedBusy)
	gang := netip.MustParsePrefix(gangSources)
	admitted := 0
	for _, d := range r.dialIns() {
		source, err := netip.ParseAddrPort(fmt.Sprint(d["source"]))
		if err != nil || !gang.Contains(source.Addr()) {
			continue // what a flood's records are summed up in has no port
		}
		assert.Contains(t, []any{"accepted", "evicted"}, d["verdict"], "%v", d)
		if d["verdict"] == "accepted" {
			admitted++
		}
	}
	assert.Equal(t, size, admitted)
}
