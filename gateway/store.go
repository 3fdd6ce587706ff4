package gateway

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// schemaVersion of the store. A newer store is refused; an older one is migrated when opened.
const schemaVersion = 2

var (
	bucketMeta      = []byte("meta")
	bucketWorkloads = []byte("workloads")   // id → record
	bucketLive      = []byte("live")        // id of those not terminal → nothing
	bucketExits     = []byte("exits")       // id, 0, epoch, rank → gang.Exit
	bucketSealed    = []byte("sealed")      // id → sealed start order
	bucketKeys      = []byte("idempotency") // uid, 0, key → id
)

// Store keeps workloads in buckets of the daemon's one store file. Writes of several callers share a sync.
type Store struct{ db *bbolt.DB }

// NewStore makes the buckets where they are missing. A store of a newer version is ErrNewerStore.
func NewStore(db *bbolt.DB) (*Store, error) {
	err := db.Update(func(tx *bbolt.Tx) error {
		for _, b := range [][]byte{bucketMeta, bucketWorkloads, bucketLive, bucketExits, bucketSealed, bucketKeys, bucketOwned} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		if v := meta.Get([]byte("schema")); v != nil {
			n, err := strconv.Atoi(string(v))
			if err != nil {
				return fmt.Errorf("schema version %q is no number", v)
			}
			if n > schemaVersion {
				return fmt.Errorf("%w: it has version %d, this program knows %d", ErrNewerStore, n, schemaVersion)
			}
			for ; n < schemaVersion; n++ {
				if err := migrations[n](tx); err != nil {
					return fmt.Errorf("migrating from version %d: %w", n, err)
				}
			}
		}
		return meta.Put([]byte("schema"), []byte(strconv.Itoa(schemaVersion)))
	})
	if err != nil {
		return nil, fmt.Errorf("opening the workload store: %w", err)
	}
	return &Store{db: db}, nil
}

// put writes a record; terminal ones leave the live list.
func (s *Store) put(r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("storing %s: %w", r.ID, err)
	}
	id := []byte(r.ID)
	terminal := r.Phase.Terminal()
	err = s.db.Batch(func(tx *bbolt.Tx) error {
		if err := tx.Bucket(bucketWorkloads).Put(id, b); err != nil {
			return err
		}
		if !terminal {
			return tx.Bucket(bucketLive).Put(id, nil)
		}
		if err := tx.Bucket(bucketSealed).Delete(id); err != nil {
			return err
		}
		return tx.Bucket(bucketLive).Delete(id)
	})
	if err != nil {
		return fmt.Errorf("storing %s: %w", r.ID, err)
	}
	return nil
}

// create writes a new record with its sealed start order, unless the owner's idempotency key is known: then the
// known workload's id is returned.
func (s *Store) create(r *record, sealed []byte) (scheduler.WorkloadID, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("storing %s: %w", r.ID, err)
	}
	var known scheduler.WorkloadID
	err = s.db.Batch(func(tx *bbolt.Tx) error {
		known = ""
		if r.Key != "" {
			keys := tx.Bucket(bucketKeys)
			k := idempotencyKey(r.UID, r.Key)
			if id := keys.Get(k); id != nil {
				known = scheduler.WorkloadID(id)
				return nil
			}
			if err := keys.Put(k, []byte(r.ID)); err != nil {
				return err
			}
		}
		if err := tx.Bucket(bucketWorkloads).Put([]byte(r.ID), b); err != nil {
			return err
		}
		if err := tx.Bucket(bucketLive).Put([]byte(r.ID), nil); err != nil {
			return err
		}
		if err := tx.Bucket(bucketOwned).Put(ownedKey(r.UID, r.ID), nil); err != nil {
			return err
		}
		return tx.Bucket(bucketSealed).Put([]byte(r.ID), sealed)
	})
	if err != nil {
		return "", fmt.Errorf("storing %s: %w", r.ID, err)
	}
	return known, nil
}

// known is the workload that an owner's idempotency key made; "" where there is none.
func (s *Store) known(uid int, key string) (id scheduler.WorkloadID, err error) {
	if key == "" {
		return "", nil
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		id = scheduler.WorkloadID(tx.Bucket(bucketKeys).Get(idempotencyKey(uid, key)))
		return nil
	})
	return id, err
}

func idempotencyKey(uid int, key string) []byte {
	return append([]byte(strconv.Itoa(uid)+"\x00"), key...)
}

// each calls fn with every stored record, in no useful order, until fn returns an error.
func (s *Store) each(fn func(*record) error) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketWorkloads).ForEach(func(k, v []byte) error {
			r := new(record)
			if err := json.Unmarshal(v, r); err != nil {
				return fmt.Errorf("reading workload %s: %w", k, err)
			}
			return fn(r)
		})
	})
}

// live reads every record that is not terminal.
func (s *Store) live() ([]*record, error) {
	var live []*record
	err := s.db.View(func(tx *bbolt.Tx) error {
		all := tx.Bucket(bucketWorkloads)
		return tx.Bucket(bucketLive).ForEach(func(k, _ []byte) error {
			r := new(record)
			if err := json.Unmarshal(all.Get(k), r); err != nil {
				return fmt.Errorf("reading workload %s: %w", k, err)
			}
			live = append(live, r)
			return nil
		})
	})
	return live, err
}

func (s *Store) sealed(id scheduler.WorkloadID) ([]byte, error) {
	var b []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		b = append(b, tx.Bucket(bucketSealed).Get([]byte(id))...)
		return nil
	})
	if err == nil && b == nil {
		err = ErrNoWorkload
	}
	return b, err
}

func exitKey(id scheduler.WorkloadID, epoch int64, rank int) []byte {
	k := append([]byte(id), 0)
	k = binary.BigEndian.AppendUint64(k, uint64(epoch))
	return binary.BigEndian.AppendUint32(k, uint32(rank))
}

// putExit stores a rank's report before it is acknowledged.
func (s *Store) putExit(id scheduler.WorkloadID, epoch int64, rank int, e gang.Exit) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("storing report: %w", err)
	}
	k := exitKey(id, epoch, rank)
	return s.db.Batch(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketExits)
		if bucket.Get(k) != nil {
			return nil
		}
		return bucket.Put(k, b)
	})
}

func (s *Store) exits(id scheduler.WorkloadID, epoch int64) (map[int]gang.Exit, error) {
	exits := map[int]gang.Exit{}
	prefix := exitKey(id, epoch, 0)[:len(id)+1+8]
	err := s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketExits).Cursor()
		for k, v := c.Seek(prefix); k != nil && len(k) == len(prefix)+4 && string(k[:len(prefix)]) == string(prefix); k, v = c.Next() {
			var e gang.Exit
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("reading report of %s: %w", id, err)
			}
			exits[int(binary.BigEndian.Uint32(k[len(prefix):]))] = e
		}
		return nil
	})
	return exits, err
}

// prune removes terminal workloads that ended before the given time, at most limit of them; it returns how many.
func (s *Store) prune(before time.Time, limit int) (int, error) {
	var gone []*record
	stop := errors.New("enough")
	err := s.each(func(r *record) error {
		if r.Phase.Terminal() && r.Ended.Before(before) {
			gone = append(gone, r)
		}
		if len(gone) == limit {
			return stop
		}
		return nil
	})
	if err != nil && !errors.Is(err, stop) {
		return 0, err
	}
	if len(gone) == 0 {
		return 0, nil
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		for _, r := range gone {
			id := []byte(r.ID)
			if err := tx.Bucket(bucketWorkloads).Delete(id); err != nil {
				return err
			}
			if err := tx.Bucket(bucketOwned).Delete(ownedKey(r.UID, r.ID)); err != nil {
				return err
			}
			if r.Key != "" {
				if err := tx.Bucket(bucketKeys).Delete(idempotencyKey(r.UID, r.Key)); err != nil {
					return err
				}
			}
			prefix := append(id, 0)
			c := tx.Bucket(bucketExits).Cursor()
			for k, _ := c.Seek(prefix); len(k) > len(prefix) && string(k[:len(prefix)]) == string(prefix); k, _ = c.Next() {
				if err := c.Delete(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return len(gone), err
}
