package credential

import (
	"context"
	"crypto/sha256"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixedNow is the clock of the tests, in Unix seconds; fixedExpiry comes after it.
const (
	fixedNow    = 1764536000.0
	fixedExpiry = 1764536400.0
)

func openStore(t testing.TB, path string) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, StoreOptions())
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func newStore(t testing.TB) *bbolt.DB {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "state.db"))
}

// run runs the burner until the test or the returned stop ends it.
func run(t testing.TB, f *Fence) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func testSecret(text string) Secret {
	return newSecret(sha256.Sum256([]byte(text)))
}

func at(seconds float64) func() time.Time {
	return func() time.Time { return time.Unix(0, int64(seconds*1e9)) }
}

// newGatekeeper has a fence of its own, whose burner runs.
func newGatekeeper(t testing.TB) *Gatekeeper {
	t.Helper()
	f, err := OpenFence(newStore(t))
	require.NoError(t, err)
	run(t, f)
	return &Gatekeeper{Secret: testSecret("a"), Fence: f, Now: at(fixedNow)}
}

// ranks is a Judge that knows every allocation, of that size.
func ranks(size int) Judge {
	return func(Claim) (Scope, error) { return Scope{Size: size}, nil }
}

func attempt(text string) Attempt {
	digest := sha256.Sum256([]byte(text))
	return &digest
}

func claim() Claim {
	return Claim{Allocation: "alloc_01", Epoch: 3, Rank: 1, Expires: fixedExpiry, Nonce: NewNonce()}
}

// cause of a refusal; "" for anything else.
func cause(err error) string {
	if r, ok := err.(*Refusal); ok {
		return r.Cause
	}
	return ""
}
