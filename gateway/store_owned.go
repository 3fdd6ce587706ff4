package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/bbolt"

	"github.com/openai4s/hpc/scheduler"
)

// bucketOwned is the index of workloads by owner: uid, 0, id → nothing. What one user asks costs what that user has.
var bucketOwned = []byte("owned")

func ownedKey(uid int, id scheduler.WorkloadID) []byte {
	return append([]byte(strconv.Itoa(uid)+"\x00"), id...)
}

// migrations bring a store from the version of their place to the next; each runs inside the transaction that opens it.
var migrations = map[int]func(*bbolt.Tx) error{1: indexOwners}

// indexOwners fills the index that stores of version 1 lack.
func indexOwners(tx *bbolt.Tx) error {
	return tx.Bucket(bucketWorkloads).ForEach(func(k, v []byte) error {
		var r struct {
			UID int `json:"uid"`
		}
		if err := json.Unmarshal(v, &r); err != nil {
			return fmt.Errorf("reading workload %s: %w", k, err)
		}
		return tx.Bucket(bucketOwned).Put(ownedKey(r.UID, scheduler.WorkloadID(k)), nil)
	})
}

// everybody stands for all owners.
const everybody = -1

// stored calls fn with the stored records of one owner, or of everybody, but for those that skip names.
func (s *Store) stored(uid int, skip func(scheduler.WorkloadID) bool, fn func(*record)) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		all := tx.Bucket(bucketWorkloads)
		read := func(id, text []byte) error {
			if skip(scheduler.WorkloadID(id)) {
				return nil
			}
			if text == nil {
				return errors.New("the index names a workload that isn't there; openai4s-gateway store check says more")
			}
			r := new(record)
			if err := json.Unmarshal(text, r); err != nil {
				return fmt.Errorf("reading workload %s: %w", id, err)
			}
			fn(r)
			return nil
		}
		if uid == everybody {
			return all.ForEach(read)
		}
		prefix := ownedKey(uid, "")
		c := tx.Bucket(bucketOwned).Cursor()
		for k, _ := c.Seek(prefix); len(k) > len(prefix) && string(k[:len(prefix)]) == string(prefix); k, _ = c.Next() {
			id := k[len(prefix):]
			if err := read(id, all.Get(id)); err != nil {
				return err
			}
		}
		return nil
	})
}
