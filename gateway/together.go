package gateway

import (
	"sync"
	"sync/atomic"
	"time"
)

// writers is how many workloads are looked at together. What changes in several of them shares a sync of the store: one
// after the other, ten thousand jobs that start at once take half a minute.
const writers = 128

// forAll calls do for every live workload, for several at a time, and returns when all are through.
func (s *Server) forAll(do func(*live)) {
	all := s.all()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(writers, len(all)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				do(all[i])
			}
		})
	}
	wg.Wait()
}

// unwatched is a time between two ticks after which the gateway itself was away: stopped by a signal, with its whole
// machine, or held by a disk that didn't answer. What ranks said meanwhile was not read.
const unwatched = 5 * time.Second

func (s *Server) wasAway(gap time.Duration, now time.Time) {
	s.log.Warn().Dur("gap", gap).Msg("the gateway itself stood still; nobody is blamed for that time")
	s.forAll(func(l *live) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gang.Away(gap, now)
		l.next = time.Time{}
	})
}
