package credential

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// pruneStep is how many records one transaction of Prune looks at, at most.
const pruneStep = 2048

// Prune forgets what can't be presented any more: burns and ranks that are expired or below their floor, and the
// floors of allocations whose last credential has expired. It returns how many records that were. It works in steps,
// with burns between them, and stops early when ctx ends.
//
// The largest expiry among what was forgotten is kept: a credential that expires no later is refused whatever the
// clock says then.
func (f *Fence) Prune(ctx context.Context, now time.Time) (int, error) {
	if err := f.Healthy(); err != nil {
		return 0, fmt.Errorf("pruning: %w", err)
	}
	p := pruner{fence: f, now: unixSeconds(now)}
	// Allocations last: a burn or rank is judged by its allocation's record.
	for _, table := range []struct {
		bucket func(tables) *bbolt.Bucket
		over   func(t tables, k, v []byte) (verdict, error)
	}{
		{func(t tables) *bbolt.Bucket { return t.burned }, p.burned},
		{func(t tables) *bbolt.Bucket { return t.ranks }, p.rank},
		{func(t tables) *bbolt.Bucket { return t.allocations }, p.allocation},
	} {
		if err := p.sweep(ctx, table.bucket, table.over); err != nil {
			return p.forgotten, fmt.Errorf("pruning: %w", err)
		}
	}
	f.dropUsed(p.now)
	return p.forgotten, nil
}

type pruner struct {
	fence     *Fence
	now       float64
	forgotten int
}

// verdict on one record: whether it goes, and which credentials can't be told from fresh ones afterwards.
type verdict struct {
	over    bool
	horizon float64 // those that expire by then
}

// burned: an expired nonce is refused by the horizon from now on, one below the floor by the floor.
func (p *pruner) burned(t tables, k, v []byte) (verdict, error) {
	u, err := decodeUse(v)
	if err != nil {
		return verdict{}, err
	}
	if u.expires <= p.now {
		return verdict{over: true, horizon: u.expires}, nil
	}
	_, below, err := p.belowFloor(t, k)
	return verdict{over: below}, err
}

// rank: without its record a rank can't resume, so it stays while a credential of the allocation may be out.
func (p *pruner) rank(t tables, k, v []byte) (verdict, error) {
	u, err := decodeUse(v)
	if err != nil {
		return verdict{}, err
	}
	record, below, err := p.belowFloor(t, k)
	return verdict{over: below || max(u.expires, record.expires) <= p.now}, err
}

func (p *pruner) allocation(_ tables, _, v []byte) (verdict, error) {
	r, err := decodeAllocation(v)
	if err != nil {
		return verdict{}, err
	}
	if r.expires > p.now || (r.floor > 0 && !r.issued) {
		return verdict{}, nil
	}
	return verdict{over: true, horizon: r.expires}, nil
}

func (p *pruner) belowFloor(t tables, k []byte) (allocationRecord, bool, error) {
	allocation, epoch, _, ok := splitKey(k)
	if !ok {
		return allocationRecord{}, false, fmt.Errorf("%w: a key of %d bytes", ErrFenceCorrupt, len(k))
	}
	r, err := t.allocation(allocation)
	return r, epoch < r.floor, err
}

// sweep walks one bucket. Each step reads without holding writers up, then deletes what is over, looked at again.
func (p *pruner) sweep(ctx context.Context, bucket func(tables) *bbolt.Bucket, over func(tables, []byte, []byte) (verdict, error)) error {
	var from []byte
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var found [][]byte
		var next []byte
		err := p.fence.view(func(t tables) error {
			c := bucket(t).Cursor()
			n := 0
			for k, v := c.Seek(from); k != nil; k, v = c.Next() {
				if n++; n > pruneStep {
					next = bytes.Clone(k)
					return nil
				}
				j, err := over(t, k, v)
				if err != nil {
					return err
				}
				if j.over {
					found = append(found, bytes.Clone(k))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := p.forget(found, bucket, over); err != nil {
			return err
		}
		if next == nil {
			return nil
		}
		from = next
	}
}

func (p *pruner) forget(keys [][]byte, bucket func(tables) *bbolt.Bucket, over func(tables, []byte, []byte) (verdict, error)) error {
	if len(keys) == 0 {
		return nil
	}
	var gone [][]byte
	var horizon float64
	err := p.fence.update(func(t tables) error {
		var err error
		if horizon, err = t.horizon(); err != nil {
			return err
		}
		was := horizon
		b := bucket(t)
		for _, k := range keys {
			v := b.Get(k)
			if v == nil {
				continue
			}
			j, err := over(t, k, v)
			if err != nil {
				return err
			}
			if !j.over {
				continue
			}
			if err := b.Delete(k); err != nil {
				return err
			}
			gone = append(gone, k)
			horizon = max(horizon, j.horizon)
		}
		if len(gone) == 0 {
			return errUnchanged
		}
		if horizon == was {
			return nil
		}
		return t.fence.Put(horizonKey, encodeSeconds(horizon))
	})
	if err != nil {
		return err
	}
	p.forgotten += len(gone)
	p.fence.forgetInMemory(gone, horizon, p.now)
	return nil
}

// forgetInMemory follows a commit. A record that has grown meanwhile stays: its own write is on the way.
func (f *Fence) forgetInMemory(keys [][]byte, horizon, now float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.horizon = max(f.horizon, horizon)
	for _, k := range keys {
		if r, ok := f.allocations[string(k)]; ok && r.expires <= now && (r.floor == 0 || r.issued) {
			delete(f.allocations, string(k))
		}
	}
}

// dropUsed forgets the marks of gangs that are expired or below their floor.
func (f *Fence) dropUsed(now float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, g := range f.used {
		allocation, epoch, _, _ := splitKey([]byte(key))
		if g.expires <= now || epoch < f.allocations[string(allocation)].floor {
			delete(f.used, key)
		}
	}
}
