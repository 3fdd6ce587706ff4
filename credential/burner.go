package credential

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// queue holds the burns that wait for the burner. A burn put while a batch is being synced is in the next one, so the
// number that shares a sync grows by itself with the load.
type queue struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	waiting []*burn
	running bool
	stopped bool
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

func (q *queue) kick() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) put(b *burn) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return ErrFenceStopped
	}
	q.waiting = append(q.waiting, b)
	q.kick()
	return nil
}

func (q *queue) take() []*burn {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.waiting
	q.waiting = nil
	return batch
}

func (q *queue) start() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running {
		return ErrFenceRunning
	}
	q.running, q.stopped = true, false
	return nil
}

// stop answers whatever waits.
func (q *queue) stop() {
	q.mu.Lock()
	q.running, q.stopped = false, true
	batch := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	answer(batch, ErrFenceStopped)
}

func answer(batch []*burn, err error) {
	for _, b := range batch {
		b.err = err
		close(b.done)
	}
}

// burn waits until the burner has judged the claim and, unless it is refused, made that durable. A caller that stops
// waiting withdraws nothing: the credential may be burned, and the same attempt may present it again.
func (f *Fence) burn(ctx context.Context, c Claim, resume uint64, a Attempt) (judgement, error) {
	if err := ctx.Err(); err != nil {
		return judgement{}, fmt.Errorf("burning: %w", err)
	}
	b := &burn{claim: c, resume: resume, done: make(chan struct{})}
	if a != nil {
		digest := *a // the burner may read it after the caller has gone
		b.attempt = &digest
	}
	if err := f.queue.put(b); err != nil {
		return judgement{}, fmt.Errorf("burning: %w", err)
	}
	select {
	case <-b.done:
		return b.judged, b.err
	case <-ctx.Done():
		return judgement{}, fmt.Errorf("waiting for the burn: %w", ctx.Err())
	}
}

const (
	firstProbe = 100 * time.Millisecond
	lastProbe  = 15 * time.Second
)

// Run is the burner: one goroutine, all waiting burns share one transaction and sync. While the fence is unhealthy it
// probes the store, more and more rarely. It returns nil when ctx ends; what waits then is answered with
// ErrFenceStopped. It may be run again.
func (f *Fence) Run(ctx context.Context) error {
	if err := f.queue.start(); err != nil {
		return err
	}
	defer f.queue.stop()

	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstProbe, lastProbe
	var retry *time.Timer
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			if retry != nil {
				retry.Stop()
			}
			return nil
		case <-f.queue.wake:
			f.burnAll(f.queue.take())
		case <-due:
			due = nil
			f.probe()
		}
		switch sick := f.Healthy(); {
		case sick == nil:
			due = nil
			pause.Reset()
		case due == nil && !errors.Is(sick, ErrFenceCorrupt):
			retry = time.NewTimer(pause.NextBackOff())
			due = retry.C
		}
	}
}

// burnAll judges a batch in the order of its coming, in one transaction, and answers it after the commit.
func (f *Fence) burnAll(batch []*burn) {
	if len(batch) == 0 {
		return
	}
	if err := f.Healthy(); err != nil {
		answer(batch, fmt.Errorf("burning: %w", err))
		return
	}
	err := f.update(func(t tables) error {
		wrote := false
		for _, b := range batch {
			j, err := b.judge(t, f.wasUsed)
			if err != nil {
				return err
			}
			b.judged = j
			wrote = wrote || j.wrote
		}
		if !wrote {
			return errUnchanged
		}
		return nil
	})
	if err != nil {
		answer(batch, fmt.Errorf("burning: %w", err))
		return
	}
	for _, b := range batch {
		if b.judged.cause != "" {
			b.err = &Refusal{Cause: b.judged.cause}
		}
		close(b.done)
	}
}

// probe writes, and brings the store up to the floors that memory holds. Where that works the fence is healthy again.
func (f *Fence) probe() {
	cause := f.sick.Load()
	if cause == nil || errors.Is(*cause, ErrFenceCorrupt) {
		return
	}
	f.mu.RLock()
	floors := make(map[string]int64, len(f.allocations))
	for key, r := range f.allocations {
		floors[key] = r.floor
	}
	f.mu.RUnlock()

	err := f.update(func(t tables) error {
		for key, floor := range floors {
			stored, err := t.allocation([]byte(key))
			if err != nil {
				return err
			}
			if stored.floor >= floor {
				continue
			}
			stored.floor = floor
			if err := t.allocations.Put([]byte(key), stored.encode()); err != nil {
				return err
			}
		}
		var count uint64
		if v := t.fence.Get(probeKey); len(v) == 8 {
			count = binary.BigEndian.Uint64(v)
		}
		return t.fence.Put(probeKey, binary.BigEndian.AppendUint64(nil, count+1))
	})
	if err == nil {
		f.sick.CompareAndSwap(cause, nil) // unless something else failed meanwhile
	}
}
