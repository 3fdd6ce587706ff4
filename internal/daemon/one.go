package daemon

import (
	"context"
	"sync"

	"github.com/openai4s/hpc/scheduler"
)

// oneAtATime lets one command of this daemon run at a time: a busy controller is not helped by a queue of questions.
type oneAtATime struct {
	scheduler.System
	mu sync.Mutex
}

// Observe asks for all ids.
func (o *oneAtATime) Observe(ctx context.Context, ids []scheduler.JobID) (scheduler.Answer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.System.Observe(ctx, ids)
}

// Cancel ends a job.
func (o *oneAtATime) Cancel(ctx context.Context, id scheduler.JobID, who scheduler.Identity) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.System.Cancel(ctx, id, who)
}

// Facts of the configuration.
func (o *oneAtATime) Facts(ctx context.Context) (scheduler.Facts, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.System.Facts(ctx)
}
