package gateway

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/openai4s/hpc/scheduler"
)

// slowCanceller lets no cancel end before it may, and remembers how many went on together.
type slowCanceller struct {
	may chan struct{}

	mu        sync.Mutex
	now, most int
	cancelled map[scheduler.JobID]int
}

func (c *slowCanceller) Cancel(ctx context.Context, job scheduler.JobID, _ scheduler.Identity) error {
	c.count(func() { c.now++; c.most = max(c.most, c.now); c.cancelled[job]++ })
	defer c.count(func() { c.now-- })
	select {
	case <-c.may:
	case <-ctx.Done():
	}
	return nil
}

func (c *slowCanceller) count(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// Many jobs that are to be ended are so a few at a time, each once.
func TestCancelsGoAFewAtATime(t *testing.T) {
	slow := &slowCanceller{may: make(chan struct{}), cancelled: map[scheduler.JobID]int{}}
	r := newRig(t)
	r.jobs = slow
	r.build()
	const jobs = 3*cancelsAtOnce + 1
	for n := range jobs {
		w := r.create(1)
		w.edit(func(rec *record) {
			rec.Attempts[0].Job, rec.Phase, rec.Cancel = scheduler.JobID{ID: fmt.Sprint(n)}, scheduler.Active, "user"
		})
	}
	r.serve()
	seen := func() (now, most, cancelled int) {
		slow.count(func() { now, most, cancelled = slow.now, slow.most, len(slow.cancelled) })
		return
	}
	r.eventually("as many as may", func() bool { now, _, _ := seen(); return now == cancelsAtOnce })
	close(slow.may)
	r.eventually("all", func() bool { _, _, cancelled := seen(); return cancelled == jobs })
	_, most, _ := seen()
	assert.Equal(t, cancelsAtOnce, most)
	slow.count(func() {
		for job, times := range slow.cancelled {
			assert.Equal(t, 1, times, job)
		}
	})
}
