package gateway

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/scheduler"
)

// A gateway that stood still for hours, by a signal or with its machine, blames no rank for what it didn't hear.
func TestTimeAwayLosesNobody(t *testing.T) {
	const away = 3 * time.Hour
	var log lockedBuffer
	r := newRig(t)
	r.server.log = zerolog.New(&log)
	var stop atomic.Bool
	var stood time.Duration // the ticks' alone
	r.server.awake = func() time.Time {
		if stop.CompareAndSwap(true, false) {
			stood += away
			r.clock.advance(away)
		}
		return time.Now().Add(stood)
	}
	r.serve()
	w := r.create(2)
	forming := r.create(2)
	a, _ := r.join(w, 0, 0, "7")
	b, _ := r.join(w, 0, 1, "7")
	r.join(forming, 0, 0, "8")
	a.until(wire.Start, &wire.StartOrder{})
	b.until(wire.Start, &wire.StartOrder{})

	stop.Store(true)
	r.eventually("the gap to be seen", func() bool { return log.contains("stood still") })
	time.Sleep(500 * time.Millisecond) // two more ticks
	for _, w := range []*workload{w, forming} {
		assert.False(t, w.phase().Terminal(), w.phase())
		w.mu.Lock()
		assert.Nil(t, w.gang.Outcome())
		w.mu.Unlock()
	}
	r.clock.advance(r.server.cfg.RankLostAfter + time.Second) // this time it was watching
	r.eventually("the silent ranks to be lost", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.gang.Outcome() != nil && w.rec.Phase != scheduler.Completed
	})
}
