package gateway

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// crowd puts many live workloads of two users into the store, a hundred of them this process's own.
func crowd(b *testing.B, r *rig, size int) (one scheduler.WorkloadID) {
	b.Helper()
	s := r.server
	var mu sync.Mutex
	var wg sync.WaitGroup
	const workers = 64
	for w := range workers {
		wg.Go(func() {
			for n := w; n < size; n += workers {
				c := request(4)
				rec := &record{
					ID: scheduler.WorkloadID("wl_" + newHex()), UID: alice, Owner: "alice", Request: c.Request,
					Phase: scheduler.Active, Created: s.now(), Version: 1,
				}
				if n < 100 {
					rec.UID, rec.Owner = os.Getuid(), "me"
				}
				s.newAllocation(rec)
				rec.Attempts[0].Job = scheduler.JobID{ID: fmt.Sprint(n + 1)}
				sealed, err := s.sealer.seal(rec.ID, c.Start)
				if err == nil {
					_, err = s.store.create(rec, sealed)
				}
				if err != nil {
					b.Error(err)
					return
				}
				s.add(s.newLive(rec))
				mu.Lock()
				if n < 100 {
					one = rec.ID
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return one
}

// answering is a scheduler that says of every job that it runs, and counts how often it is asked.
type answering struct {
	scheduler.System
	verbatim string
	asked    int
}

func (a *answering) Observe(_ context.Context, ids []scheduler.JobID) (scheduler.Answer, error) {
	a.asked++
	known := make(map[scheduler.JobID]scheduler.Observation, len(ids))
	for _, id := range ids {
		known[id] = scheduler.Observation{Phase: scheduler.Granted, Verbatim: a.verbatim}
	}
	return scheduler.Answer{Known: known}, nil
}

// BenchmarkWorkloads measures what users and the observation loop do beside many live workloads: one status, one list
// of a hundred own ones, an admin's list of all, and a tick's work apart from the scheduler's own. The number of
// questions a tick doesn't grow.
func BenchmarkWorkloads(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		r := newRig(b)
		r.server.FactsRead(scheduler.Facts{SeesOthers: true})
		one := crowd(b, r, size)
		c := r.control()
		ctx := context.Background()
		b.Run(fmt.Sprintf("status/%d", size), func(b *testing.B) {
			for range b.N {
				w, err := c.Get(ctx, string(one))
				require.NoError(b, err)
				require.Equal(b, one, w.ID)
			}
		})
		list := func(which api.Which, want int) func(*testing.B) {
			return func(b *testing.B) {
				for range b.N {
					found, err := c.List(ctx, which)
					require.NoError(b, err)
					require.Len(b, found.Workloads, want)
				}
			}
		}
		b.Run(fmt.Sprintf("list/%d", size), list(api.Which{}, 100))
		b.Run(fmt.Sprintf("list-all/%d", size), list(api.Which{All: true, Limit: 1000}, min(size, 1000))) // as the command asks
		b.Run(fmt.Sprintf("list-all-unlimited/%d", size), list(api.Which{All: true}, size))
		b.Run(fmt.Sprintf("tick/%d", size), func(b *testing.B) {
			system := &answering{verbatim: "RUNNING"}
			for range b.N {
				ids := r.server.Live()
				require.Len(b, ids, size)
				answer, err := system.Observe(ctx, ids)
				require.NoError(b, err)
				r.server.Observed(answer.Known, nil)
			}
			b.ReportMetric(float64(system.asked)/float64(b.N), "questions/tick")
		})
		// Every job says something new, and all of it is stored.
		b.Run(fmt.Sprintf("tick-of-changes/%d", size), func(b *testing.B) {
			for n := range b.N {
				system := &answering{verbatim: fmt.Sprint("RUNNING ", b.N, n)}
				answer, err := system.Observe(ctx, r.server.Live())
				require.NoError(b, err)
				r.server.Observed(answer.Known, nil)
			}
		})
	}
}
