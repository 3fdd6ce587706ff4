package gateway

import (
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/gateway/wire"
)

// drain is a connection that takes everything and counts it.
type drain struct {
	net.Conn
	bytes *atomic.Int64
	first *atomic.Int64 // connections that were written to
	wrote bool
}

func (d *drain) Write(p []byte) (int, error) {
	d.bytes.Add(int64(len(p)))
	if !d.wrote {
		d.wrote = true
		d.first.Add(1)
	}
	return len(p), nil
}

func (d *drain) SetWriteDeadline(time.Time) error { return nil }
func (d *drain) Close() error                     { return nil }

// BenchmarkRelease measures from the last rank's registration to the last start order written, and the bytes a rank.
func BenchmarkRelease(b *testing.B) {
	for _, size := range []int{1024, 4096, 16384} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := newRig(b, func(c *Config) { c.Widest = size })
			var total time.Duration
			var bytes, written atomic.Int64
			for range b.N {
				c := request(size)
				rec := &record{ID: "wl_0123456789ab", Request: c.Request, Phase: "GRANTED", Attempts: make([]allocation, 1), Version: 1}
				l := r.server.newLive(rec)
				l.start = &c.Start
				written.Store(0)
				for rank := range size {
					l.peers[rank] = &peer{rank: rank, agent: &wire.Agent{}, conn: &drain{bytes: &bytes, first: &written}}
				}
				now := r.clock.now()
				for rank := range size - 1 {
					l.gang.Join(rank, gang.Member{Host: fmt.Sprintf("node%d", rank+1), Address: "10.0.0.1", FreePort: 4711}, false, now)
				}
				start := time.Now()
				_, events := l.gang.Join(size-1, gang.Member{Host: fmt.Sprintf("node%d", size), Address: "10.0.0.1"}, false, now)
				l.mu.Lock()
				l.act(events, now)
				l.mu.Unlock()
				for written.Load() < int64(size) {
					runtime.Gosched()
				}
				total += time.Since(start)
			}
			b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "ms/release")
			b.ReportMetric(float64(bytes.Load())/float64(size*b.N), "bytes/rank")
			b.ReportMetric(0, "ns/op")
		})
	}
}
