package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"go.etcd.io/bbolt"

	"github.com/openai4s/hpc/gateway/gang"
)

// StoreReport is what CheckStore found.
type StoreReport struct {
	Schema    int      `json:"schema"`
	Workloads int      `json:"workloads"`
	Live      int      `json:"live"`
	Reports   int      `json:"reports"` // of ranks' ends
	Bytes     int64    `json:"bytes"`
	Problems  []string `json:"problems"`
}

// maxProblems bounds how many problems are listed.
const maxProblems = 100

// CheckStore reads everything that the gateway keeps, and the file's own structure, and says what is wrong. It
// changes nothing.
func CheckStore(db *bbolt.DB) (StoreReport, error) {
	r := StoreReport{Problems: []string{}}
	problem := func(format string, args ...any) {
		if len(r.Problems) < maxProblems {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	err := db.View(func(tx *bbolt.Tx) error {
		r.Bytes = tx.Size()
		for err := range tx.Check() {
			problem("the file's structure: %v", err)
		}
		meta := tx.Bucket(bucketMeta)
		if meta == nil {
			problem("there is no table %q: no gateway ever used this store", bucketMeta)
			return nil
		}
		version, err := strconv.Atoi(string(meta.Get([]byte("schema"))))
		if err != nil || version > schemaVersion {
			problem("schema version %q, this program knows %d", meta.Get([]byte("schema")), schemaVersion)
		}
		r.Schema = version
		return checkTables(tx, &r, problem)
	})
	if err != nil {
		return r, fmt.Errorf("checking the store: %w", err)
	}
	return r, nil
}

func checkTables(tx *bbolt.Tx, r *StoreReport, problem func(string, ...any)) error {
	for _, name := range [][]byte{bucketWorkloads, bucketLive, bucketExits, bucketSealed, bucketKeys, bucketOwned} {
		if tx.Bucket(name) == nil {
			problem("the table %q is missing", name)
			return nil
		}
	}
	workloads, live := tx.Bucket(bucketWorkloads), tx.Bucket(bucketLive)
	err := workloads.ForEach(func(k, v []byte) error {
		r.Workloads++
		var rec record
		switch err := json.Unmarshal(v, &rec); {
		case err != nil:
			problem("workload %s can't be read: %v", k, err)
		case string(rec.ID) != string(k):
			problem("workload %s says that it is %s", k, rec.ID)
		case len(rec.Attempts) == 0:
			problem("workload %s has no allocation", k)
		case !rec.Phase.Terminal() && !holds(live, k):
			problem("workload %s is %s and not in the list of live ones", k, rec.Phase)
		case !holds(tx.Bucket(bucketOwned), ownedKey(rec.UID, rec.ID)):
			problem("workload %s is not in its owner's list", k)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = live.ForEach(func(k, _ []byte) error {
		r.Live++
		if workloads.Get(k) == nil {
			problem("live workload %s has no record", k)
		} else if !holds(tx.Bucket(bucketSealed), k) {
			problem("live workload %s has no start order", k)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = tx.Bucket(bucketOwned).ForEach(func(k, _ []byte) error {
		if _, id, _ := bytes.Cut(k, []byte{0}); workloads.Get(id) == nil {
			problem("an owner's list names %q, which has no record", id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Bucket(bucketExits).ForEach(func(k, v []byte) error {
		r.Reports++
		id, _, ok := bytes.Cut(k, []byte{0})
		var e gang.Exit
		if !ok || workloads.Get(id) == nil {
			problem("a rank's report belongs to no workload: %q", id)
		} else if err := json.Unmarshal(v, &e); err != nil {
			problem("a report of %s can't be read: %v", id, err)
		}
		return nil
	})
}

// holds tells whether a bucket has the key, whose value may be empty.
func holds(b *bbolt.Bucket, key []byte) bool {
	k, _ := b.Cursor().Seek(key)
	return bytes.Equal(k, key)
}
