package gateway

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/openai4s/hpc/gateway/api"
)

// counters of admission, each its own, since the gateway was made.
type counters struct {
	accepted, refusedBusy, refusedSource, evicted, timedOut, reaped, resumed, duplicateRank atomic.Uint64

	mu       sync.Mutex
	rejected map[string]uint64
}

func (c *counters) reject(cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rejected == nil {
		c.rejected = map[string]uint64{}
	}
	c.rejected[cause]++
}

func (c *counters) snapshot(s *slots) api.Handshakes {
	c.mu.Lock()
	rejected := maps.Clone(c.rejected)
	c.mu.Unlock()
	return api.Handshakes{
		Bound: s.bound, InUse: s.inUse(), Accepted: c.accepted.Load(), Rejected: rejected,
		RefusedBusy: c.refusedBusy.Load(), RefusedSource: c.refusedSource.Load(), Evicted: c.evicted.Load(),
		TimedOut: c.timedOut.Load(), Reaped: c.reaped.Load(), Resumed: c.resumed.Load(), DuplicateRank: c.duplicateRank.Load(),
	}
}
