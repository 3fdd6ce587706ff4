package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Tracked is the reconcile loop's view of what it reconciles.
type Tracked interface {
	// Live lists the jobs to ask for.
	Live() []JobID
	// Observed takes the answers of one tick. What got no answer is in neither.
	Observed(known map[JobID]Observation, absent []JobID)
	// Ticked is told how a tick went.
	Ticked(err error)
	// FactsRead takes the scheduler's configuration, at the start and now and then.
	FactsRead(f Facts)
}

// Reconciler asks the scheduler for all live jobs with one query a tick, and backs off while it doesn't answer.
// No answer moves nothing.
type Reconciler struct {
	System   System
	Tracked  Tracked
	Interval time.Duration // between ticks
	Soonest  time.Duration // between ticks when poked
	Timeout  time.Duration // of one tick

	poke chan struct{}
}

// NewReconciler returns a loop that ticks every interval, and at the soonest interval/4 after a tick when poked.
func NewReconciler(s System, t Tracked, interval time.Duration) *Reconciler {
	return &Reconciler{System: s, Tracked: t, Interval: interval, Soonest: interval / 4, Timeout: time.Minute, poke: make(chan struct{}, 1)}
}

const (
	// slowest bounds the back-off while the scheduler doesn't answer.
	slowest = 2 * time.Minute
	// factsEvery is how often the configuration is read again.
	factsEvery = time.Hour
)

// Poke asks for a tick soon.
func (r *Reconciler) Poke() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Run ticks until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	var factsAt time.Time
	wait := time.Duration(0)
	failures := 0
	for {
		if !r.sleep(ctx, wait) {
			return nil
		}
		if time.Since(factsAt) > factsEvery {
			if f, err := r.facts(ctx); err == nil {
				r.Tracked.FactsRead(f)
				factsAt = time.Now()
			}
		}
		err := r.tick(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.Tracked.Ticked(err)
		if err == nil {
			failures = 0
			wait = r.Interval
			continue
		}
		failures++
		wait = min(r.Interval<<min(failures, 6), slowest)
		wait += rand.N(wait/4 + 1)
	}
}

// sleep waits for the interval, or for a poke after Soonest. False: ctx ended.
func (r *Reconciler) sleep(ctx context.Context, wait time.Duration) bool {
	soonest := time.NewTimer(min(r.Soonest, wait))
	defer soonest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-soonest.C:
	}
	if wait <= r.Soonest {
		return true
	}
	rest := time.NewTimer(wait - r.Soonest)
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-rest.C:
	case <-r.poke:
	}
	return true
}

func (r *Reconciler) facts(ctx context.Context) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return r.System.Facts(ctx)
}

// tick asks once for everything that lives.
func (r *Reconciler) tick(ctx context.Context) error {
	ids := r.Tracked.Live()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	answer, err := r.System.Observe(ctx, ids)
	if err != nil {
		return fmt.Errorf("observing %d jobs: %w", len(ids), err)
	}
	var absent []JobID
	var unanswered error
	for _, id := range ids {
		if _, known := answer.Known[id]; known {
			continue
		}
		if err, ok := answer.Unanswered[id]; ok {
			unanswered = errors.Join(unanswered, fmt.Errorf("job %s: %w", id, err))
			continue
		}
		absent = append(absent, id)
	}
	r.Tracked.Observed(answer.Known, absent)
	if len(answer.Known) == 0 && len(absent) == 0 {
		return unanswered
	}
	return nil
}
