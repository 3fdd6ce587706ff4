package credential

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
)

// ledger is what the fence needs of *bbolt.DB.
type ledger interface {
	Update(func(*bbolt.Tx) error) error
	View(func(*bbolt.Tx) error) error
}

// StoreOptions are what the store file should be opened with. The free list isn't written with every commit, as its
// length grows with what was pruned, and a burn would pay for it; it is rebuilt when the file is opened. The timeout
// makes a second daemon on the same file fail instead of wait.
func StoreOptions() *bbolt.Options {
	return &bbolt.Options{
		Timeout:        2 * time.Second,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	}
}

var (
	burnedBucket      = []byte("credential.burned")
	ranksBucket       = []byte("credential.ranks")
	allocationsBucket = []byte("credential.allocations")
	fenceBucket       = []byte("credential.fence")

	horizonKey = []byte("horizon") // of fenceBucket: the largest expiry among forgotten records
	probeKey   = []byte("probe")   // of fenceBucket: rewritten to see whether writes work again
)

// tables are the fence's buckets in one transaction.
type tables struct{ burned, ranks, allocations, fence *bbolt.Bucket }

func openTables(tx *bbolt.Tx) (tables, error) {
	t := tables{
		burned:      tx.Bucket(burnedBucket),
		ranks:       tx.Bucket(ranksBucket),
		allocations: tx.Bucket(allocationsBucket),
		fence:       tx.Bucket(fenceBucket),
	}
	if t.burned == nil || t.ranks == nil || t.allocations == nil || t.fence == nil {
		return tables{}, fmt.Errorf("%w: a bucket is missing", ErrFenceCorrupt)
	}
	return t, nil
}

// allocation reads one record; the zero record where there is none.
func (t tables) allocation(key []byte) (allocationRecord, error) {
	v := t.allocations.Get(key)
	if v == nil {
		return allocationRecord{}, nil
	}
	return decodeAllocation(v)
}

// horizon is the largest expiry among the records that were forgotten.
func (t tables) horizon() (float64, error) {
	v := t.fence.Get(horizonKey)
	if v == nil {
		return 0, nil
	}
	return decodeSeconds(v)
}

// errUnchanged ends a transaction that found nothing to write: no commit, no sync.
var errUnchanged = errors.New("nothing to write")

// update runs one write transaction. Any failure makes the fence unhealthy before update returns.
func (f *Fence) update(write func(tables) error) error {
	err := protect(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			t, err := openTables(tx)
			if err != nil {
				return err
			}
			return write(t)
		})
	})
	if err == nil || errors.Is(err, errUnchanged) {
		return nil
	}
	return f.fail(err)
}

// view runs one read transaction. What can't be read makes the fence unhealthy.
func (f *Fence) view(read func(tables) error) error {
	err := protect(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			t, err := openTables(tx)
			if err != nil {
				return err
			}
			return read(t)
		})
	})
	if err == nil {
		return nil
	}
	return f.fail(err)
}

// protect turns what a damaged file does to the store, panics and faults of the memory map, into ErrFenceCorrupt.
func protect(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the store gave up: %.200s", ErrFenceCorrupt, fmt.Sprint(p))
		}
	}()
	return do()
}
