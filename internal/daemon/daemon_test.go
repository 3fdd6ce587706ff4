package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/site"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a scheduler that has no jobs.
type quiet struct{}

func (quiet) Submit(context.Context, scheduler.Submission) (scheduler.Receipt, error) {
	return scheduler.Receipt{Outcome: scheduler.Rejected}, nil
}

func (quiet) Find(context.Context, scheduler.Identity) ([]scheduler.JobID, error) { return nil, nil }

func (quiet) Observe(context.Context, []scheduler.JobID) (scheduler.Answer, error) {
	return scheduler.Answer{}, nil
}

func (quiet) Cancel(context.Context, scheduler.JobID, scheduler.Identity) error {
	return scheduler.ErrNoSuchJob
}

func (quiet) Facts(context.Context) (scheduler.Facts, error) { return scheduler.Facts{}, nil }

// options of a daemon in a folder of the test's.
func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "site.toml")
	require.NoError(t, os.WriteFile(path, []byte(`
[site]
name = "lab"
scheduler = "local"
[profiles.p]
max_nodes = 4
`), 0o600))
	s, err := site.Load(path)
	require.NoError(t, err)
	return Options{
		Site: s, System: quiet{}, StateDir: filepath.Join(dir, "state"), Control: filepath.Join(dir, "run", "control.sock"),
		Listen: "127.0.0.1:0", Version: "test", Log: zerolog.Nop(),
	}
}

// start runs a daemon until the returned stop, which gives Run's error.
func start(t *testing.T, o Options) (Running, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	up := make(chan Running, 1)
	over := make(chan error, 1)
	go func() { over <- Run(ctx, o, func(r Running) { up <- r }) }()
	t.Cleanup(cancel)
	select {
	case r := <-up:
		return r, func() error { cancel(); return <-over }
	case err := <-over:
		cancel()
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon doesn't come up")
	}
	return Running{}, nil
}

func TestStartStopStart(t *testing.T) {
	o := options(t)
	for range 3 {
		r, stop := start(t, o)
		assert.True(t, r.Idle())
		require.Len(t, r.Address, 1)
		c, err := net.Dial("unix", o.Control)
		require.NoError(t, err)
		c.Close()
		a, err := net.Dial("tcp", r.Address[0])
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, stop())
		assert.Less(t, time.Since(began), 5*time.Second)
		_, err = a.Read(make([]byte, 1))
		assert.Error(t, err, "what it owned is closed")
		a.Close()
		assert.NoFileExists(t, o.Control)
	}
}

func TestSecondDaemonOnTheStateFolder(t *testing.T) {
	o := options(t)
	_, stop := start(t, o)
	second := o
	second.Control = filepath.Join(t.TempDir(), "other.sock")
	err := Run(t.Context(), second, func(Running) { t.Error("it serves") })
	assert.ErrorIs(t, err, ErrLocked)
	assert.ErrorContains(t, err, o.StateDir)
	require.NoError(t, stop())
	_, stop = start(t, second)
	require.NoError(t, stop())
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	o := options(t)
	require.NoError(t, os.Mkdir(o.StateDir, 0o755)) // it is closed to others
	_, stop := start(t, o)
	defer func() { require.NoError(t, stop()) }()
	seen := 0
	require.NoError(t, filepath.Walk(o.StateDir, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		seen++
		want := os.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		assert.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
	assert.GreaterOrEqual(t, seen, 6, "folder, lock, secret, TLS key, store, audit log")
	info, err := os.Stat(o.Control)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o666), info.Mode().Perm(), "anybody may ask; the kernel says who")
	info, err = os.Stat(filepath.Dir(o.Control))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
}

func TestControlSockets(t *testing.T) {
	t.Run("a stale one is removed", func(t *testing.T) {
		o := options(t)
		require.NoError(t, os.MkdirAll(filepath.Dir(o.Control), 0o755))
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.Control})
		require.NoError(t, err)
		ln.SetUnlinkOnClose(false)
		ln.Close()
		require.FileExists(t, o.Control)
		_, stop := start(t, o)
		require.NoError(t, stop())
	})
	t.Run("a living one stays", func(t *testing.T) {
		o := options(t)
		require.NoError(t, os.MkdirAll(filepath.Dir(o.Control), 0o755))
		ln, err := net.Listen("unix", o.Control)
		require.NoError(t, err)
		defer ln.Close()
		err = Run(t.Context(), o, func(Running) { t.Error("it serves") })
		assert.ErrorContains(t, err, "another daemon serves "+o.Control)
		c, err := net.Dial("unix", o.Control)
		require.NoError(t, err)
		c.Close()
	})
	t.Run("a file in its place stays", func(t *testing.T) {
		o := options(t)
		require.NoError(t, os.MkdirAll(filepath.Dir(o.Control), 0o755))
		require.NoError(t, os.WriteFile(o.Control, []byte("precious"), 0o600))
		err := Run(t.Context(), o, func(Running) { t.Error("it serves") })
		assert.ErrorContains(t, err, "no socket; move it away")
		assert.FileExists(t, o.Control)
	})
	t.Run("one user's own", func(t *testing.T) {
		o := options(t)
		o.Embedded = true
		_, stop := start(t, o)
		info, err := os.Stat(o.Control)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.NoError(t, stop())
	})
}

func TestFailedStartLeavesNothingHeld(t *testing.T) {
	o := options(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	bad := o
	bad.Listen = ln.Addr().String()
	assert.ErrorContains(t, Run(t.Context(), bad, func(Running) {}), "opening the agents' listener")
	require.NoError(t, os.WriteFile(filepath.Join(o.StateDir, "state.db"), []byte(strings.Repeat("x", 8192)), 0o600))
	assert.ErrorContains(t, Run(t.Context(), o, func(Running) {}), "state.db")
	require.NoError(t, os.Remove(filepath.Join(o.StateDir, "state.db")))
	_, stop := start(t, o)
	require.NoError(t, stop())
}

func TestWithoutAListener(t *testing.T) {
	o := options(t)
	o.Listen = ""
	r, stop := start(t, o)
	assert.Empty(t, r.Address)
	require.NoError(t, stop())
}
