package gateway

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/scheduler"
)

func openStore(t *testing.T) (*bbolt.DB, *Store) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "state.db"), 0o600, credential.StoreOptions())
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	s, err := NewStore(db)
	require.NoError(t, err)
	return db, s
}

func owned(t *testing.T, s *Store, uid int) []scheduler.WorkloadID {
	t.Helper()
	ids := []scheduler.WorkloadID{}
	require.NoError(t, s.stored(uid, func(id scheduler.WorkloadID) bool { return id == "wl_skipped" }, func(r *record) { ids = append(ids, r.ID) }))
	return ids
}

func put(t *testing.T, s *Store, uid int, id scheduler.WorkloadID) {
	t.Helper()
	_, err := s.create(&record{ID: id, UID: uid, Phase: scheduler.Completed, Attempts: make([]allocation, 1)}, []byte("sealed"))
	require.NoError(t, err)
}

// TestOwnersIndex: uids that begin alike are apart, and what is gone from the store is gone from its owner's list.
func TestOwnersIndex(t *testing.T) {
	db, s := openStore(t)
	put(t, s, 1, "wl_a")
	put(t, s, 1, "wl_skipped")
	put(t, s, 10, "wl_b")
	put(t, s, 10, "wl_c")
	require.Equal(t, []scheduler.WorkloadID{"wl_a"}, owned(t, s, 1))
	require.Equal(t, []scheduler.WorkloadID{"wl_b", "wl_c"}, owned(t, s, 10))
	require.Empty(t, owned(t, s, 100))
	require.Len(t, owned(t, s, everybody), 3)
	report, err := CheckStore(db)
	require.NoError(t, err)
	for _, p := range report.Problems {
		require.NotContains(t, p, "owner")
	}

	gone, err := s.prune(time.Now(), 10)
	require.NoError(t, err)
	require.Equal(t, 4, gone)
	require.Empty(t, owned(t, s, 10))
}

// TestMigration: a store of version 1 has no index; it is made when the store is opened.
func TestMigration(t *testing.T) {
	db, s := openStore(t)
	put(t, s, os.Getuid(), "wl_old")
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		require.NoError(t, tx.DeleteBucket(bucketOwned))
		return tx.Bucket(bucketMeta).Put([]byte("schema"), []byte("1"))
	}))
	s, err := NewStore(db)
	require.NoError(t, err)
	require.Equal(t, []scheduler.WorkloadID{"wl_old"}, owned(t, s, os.Getuid()))
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		require.Equal(t, "2", string(tx.Bucket(bucketMeta).Get([]byte("schema"))))
		return nil
	}))

	require.NoError(t, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put([]byte("schema"), []byte("3")) }))
	_, err = NewStore(db)
	require.ErrorIs(t, err, ErrNewerStore)
}

// TestCheckFindsABrokenIndex, both ways.
func TestCheckFindsABrokenIndex(t *testing.T) {
	db, s := openStore(t)
	put(t, s, 7, "wl_a")
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketOwned)
		require.NoError(t, b.Delete(ownedKey(7, "wl_a")))
		return b.Put(ownedKey(7, "wl_none"), nil)
	}))
	report, err := CheckStore(db)
	require.NoError(t, err)
	require.Contains(t, report.Problems, "workload wl_a is not in its owner's list")
	require.Contains(t, report.Problems, `an owner's list names "wl_none", which has no record`)
}
