package slurm

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 250 * time.Millisecond
	longest    = 16 * time.Second
	slow       = 3 * time.Second // a healthy controller takes a submission in some 40 ms
)

// pacer lets submissions of one process through one at a time, and makes the next one wait after the controller
// showed that it is overloaded: twice as long each time, with jitter, so that many clients don't come back at once.
type pacer struct {
	turn  chan struct{}
	pause time.Duration // guarded by turn
}

func newPacer() *pacer {
	p := &pacer{turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// enter waits for its turn and for the pause, if one is due. The caller must call leave if it returns nil.
func (p *pacer) enter(ctx context.Context) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ctx.Err() != nil { // both were ready, and chance chose
		p.turn <- struct{}{}
		return context.Cause(ctx)
	}
	if p.pause == 0 {
		return nil
	}
	t := time.NewTimer(p.pause/2 + rand.N(p.pause))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		p.turn <- struct{}{}
		return context.Cause(ctx)
	}
}

// leave gives the turn back; busy tells that the controller was overloaded.
func (p *pacer) leave(busy bool) {
	switch {
	case !busy:
		p.pause = 0
	case p.pause == 0:
		p.pause = firstPause
	default:
		p.pause = min(2*p.pause, longest)
	}
	p.turn <- struct{}{}
}
