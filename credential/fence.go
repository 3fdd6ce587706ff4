package credential

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// Fence is the durable memory of burned nonces and raised epochs, in buckets of the daemon's store file.
//
// What decides is what the store says inside the burn's own transaction. The copies in memory serve the checks before
// it, and are never more lenient than the store: floors rise in memory first.
type Fence struct {
	db    ledger
	queue queue
	sick  atomic.Pointer[error] // why nothing can be admitted; nil while healthy

	mu          sync.RWMutex // held for map operations alone
	allocations map[string]allocationRecord
	used        map[string]*usedGang
	horizon     float64
}

// usedGang holds the nonces of one (allocation, epoch) whose admissions were used.
type usedGang struct {
	expires float64 // the largest of them
	nonces  map[string]struct{}
}

// OpenFence loads the floors and reads every record once, so that damage shows now. Run must run for burns to be
// answered.
func OpenFence(db *bbolt.DB) (*Fence, error) {
	f, err := openFence(db)
	if err != nil {
		return nil, fmt.Errorf("opening the fence in %s: %w", db.Path(), err)
	}
	return f, nil
}

func openFence(db ledger) (*Fence, error) {
	f := &Fence{
		db:          db,
		queue:       newQueue(),
		allocations: map[string]allocationRecord{},
		used:        map[string]*usedGang{},
	}
	err := protect(func() error { return db.Update(createBuckets) })
	if err != nil && !errors.Is(err, errUnchanged) {
		return nil, err
	}
	if err := f.view(f.load); err != nil {
		return nil, err
	}
	return f, nil
}

// createBuckets makes all four or finds all four: some of them is damage.
func createBuckets(tx *bbolt.Tx) error {
	names := [][]byte{burnedBucket, ranksBucket, allocationsBucket, fenceBucket}
	found := 0
	for _, name := range names {
		if tx.Bucket(name) != nil {
			found++
		}
	}
	switch found {
	case len(names):
		return errUnchanged
	case 0:
	default:
		return fmt.Errorf("%w: %d of its %d buckets are there", ErrFenceCorrupt, found, len(names))
	}
	for _, name := range names {
		if _, err := tx.CreateBucket(name); err != nil {
			return fmt.Errorf("creating bucket %s: %w", name, err)
		}
	}
	return nil
}

func (f *Fence) load(t tables) (err error) {
	if f.horizon, err = t.horizon(); err != nil {
		return err
	}
	err = t.allocations.ForEach(func(k, v []byte) error {
		r, err := decodeAllocation(v)
		f.allocations[string(k)] = r
		return err
	})
	if err != nil {
		return err
	}
	for _, b := range []*bbolt.Bucket{t.burned, t.ranks} {
		err := b.ForEach(func(k, v []byte) error {
			if _, _, _, ok := splitKey(k); !ok {
				return fmt.Errorf("%w: a key of %d bytes", ErrFenceCorrupt, len(k))
			}
			_, err := decodeUse(v)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Healthy returns nil, or why nothing can be admitted.
func (f *Fence) Healthy() error {
	if cause := f.sick.Load(); cause != nil {
		return *cause
	}
	return nil
}

// fail makes the fence unhealthy and returns why. Damage outranks a failed write: no probe mends it.
func (f *Fence) fail(err error) error {
	if !errors.Is(err, ErrFenceCorrupt) {
		err = fmt.Errorf("%w: %w", ErrFenceUnhealthy, err)
	}
	for {
		old := f.sick.Load()
		if old != nil && errors.Is(*old, ErrFenceCorrupt) {
			return err
		}
		if f.sick.CompareAndSwap(old, &err) {
			f.queue.kick() // Run begins to probe
			return err
		}
	}
}

// Raise bars every epoch below floor of the allocation, durably. It never lowers. Where it returns an error the epochs
// are barred all the same until the process ends, and a later Raise or probe makes it durable.
func (f *Fence) Raise(ctx context.Context, allocation string, floor int64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("raising the floor of %q: %w", allocation, err)
	}
	if err := f.grow(allocation, allocationRecord{floor: max(floor, 0)}); err != nil {
		return fmt.Errorf("raising the floor of %q to %d: %w", allocation, floor, err)
	}
	return nil
}

// rememberStep rounds remembered expiries up, so that a resume credential issued every few seconds costs a write an
// hour.
const rememberStep = 3600

// Remember is told, before a credential is handed out, until when (Unix seconds) it can be presented. The allocation's
// floor is kept that long; the floor of an allocation nothing was ever remembered of is kept for good.
func (f *Fence) Remember(ctx context.Context, allocation string, expires float64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("remembering the expiry of %q: %w", allocation, err)
	}
	if !finite(expires) {
		return fmt.Errorf("remembering the expiry of %q: %w: expiry %v", allocation, ErrClaim, expires)
	}
	f.mu.RLock()
	known := f.allocations[string(allocationKey(allocation))]
	f.mu.RUnlock()
	if known.issued && known.expires >= expires {
		return nil
	}
	until := math.Ceil(expires/rememberStep) * rememberStep
	if err := f.grow(allocation, allocationRecord{expires: until, issued: true}); err != nil {
		return fmt.Errorf("remembering the expiry of %q: %w", allocation, err)
	}
	return nil
}

// grow merges r into the allocation's record. The floor rises in memory before it does in the store; the expiry after,
// as Remember takes the one in memory for durable.
func (f *Fence) grow(allocation string, r allocationRecord) error {
	key := allocationKey(allocation)
	f.mergeInMemory(key, allocationRecord{floor: r.floor})
	var merged allocationRecord
	err := f.update(func(t tables) error {
		stored, err := t.allocation(key)
		if err != nil {
			return err
		}
		if merged = stored.merge(r); merged == stored {
			return errUnchanged // others' commits included: bbolt runs one write transaction at a time
		}
		return t.allocations.Put(key, merged.encode())
	})
	if err != nil {
		return err
	}
	f.mergeInMemory(key, merged)
	return nil
}

func (f *Fence) mergeInMemory(key []byte, r allocationRecord) {
	if r == (allocationRecord{}) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allocations[string(key)] = f.allocations[string(key)].merge(r)
}

// Floor is the lowest epoch still admitted of an allocation.
func (f *Fence) Floor(allocation string) int64 {
	key := allocationKey(allocation)
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.allocations[string(key)].floor
}

// forgot says whether a credential of that expiry may have been burned and forgotten since. It matters only where the
// clock was set back: Prune forgets nothing before its time.
func (f *Fence) forgot(expires float64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return expires <= f.horizon
}

// Used marks that a byte came after the answer: the same credential is not admitted again. The mark is in memory;
// after a restart the attempt secret alone decides, which only the same agent has.
func (f *Fence) Used(c Claim) {
	key := string(gangKey(c.Allocation, c.Epoch))
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.used[key]
	if g == nil {
		g = &usedGang{nonces: map[string]struct{}{}}
		f.used[key] = g
	}
	g.expires = max(g.expires, c.Expires)
	g.nonces[c.Nonce] = struct{}{}
}

func (f *Fence) wasUsed(c Claim) bool {
	key := gangKey(c.Allocation, c.Epoch)
	f.mu.RLock()
	defer f.mu.RUnlock()
	g := f.used[string(key)]
	if g == nil {
		return false
	}
	_, used := g.nonces[c.Nonce]
	return used
}
