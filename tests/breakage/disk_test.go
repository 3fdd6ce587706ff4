package breakage_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// smallDisk puts a file system of two megabytes under a user's RUN folders.
func smallDisk(t *testing.T, u *rig.User) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root; the test command runs as root")
	}
	u.Write(t, ".openai4s/run/keep", "")
	dir := filepath.Join(u.Home, ".openai4s", "run")
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", 0, "size=2m,mode=0700"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	require.NoError(t, os.Chown(dir, u.UID, -1))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o700))
	return dir
}

// fill leaves no byte of a file system free.
func fill(t *testing.T, dir string) (file string) {
	t.Helper()
	file = filepath.Join(dir, "filling")
	f, err := os.Create(file)
	require.NoError(t, err)
	defer f.Close()
	for size := 1 << 16; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else {
			require.NoError(t, err)
		}
	}
	return file
}

// TestFullDiskOfRun: what a rank can't leave in RUN it still tells the gateway.
func TestFullDiskOfRun(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	disk := smallDisk(t, alice)
	good := alice.Submit(t, rig.Shell(3, untilGo, ""))
	bad := alice.Submit(t, rig.Shell(3, untilGo+"; test $RANK != 1 || exit 7; sleep 60", ""))
	for _, id := range []string{good, bad} {
		awaitOutput(t, alice, id, "up", 3)
	}
	paths := map[string]string{}
	for _, id := range []string{good, bad} {
		paths[id] = alice.Status(t, id).Text("output")
	}
	fill(t, disk)
	for _, path := range paths {
		touchBeside(t, path, "go")
	}
	w := alice.AwaitEnd(t, good)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Equal(t, 3, w.Int("ranks", "exited"), "%s", w)
	w = alice.AwaitEnd(t, bad)
	require.Equal(t, "COMMAND_FAILED", w.Text("reason"), "%s", w)
	require.Equal(t, 7, w.Int("result", "exit_code"), "%s", w)
	require.Equal(t, 1, w.Int("result", "rank"), "%s", w)
	// Whichever ended first met the full disk; its bundle's end made room for the other's.
	require.Contains(t, alice.Read(t, paths[good])+alice.Read(t, paths[bad]), "the job's exit code can't be left in RUN", "the disk wasn't full")
}

// TestFullDiskAtSubmit: said in words, nothing submitted, nothing left; with room again it works.
func TestFullDiskAtSubmit(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	disk := smallDisk(t, alice)
	filling := fill(t, disk)
	ran := alice.TrySubmit(t, rig.Shell(2, "true", ""))
	require.NotZero(t, ran.Code)
	require.Contains(t, ran.Stderr, "no space left on device")
	require.Contains(t, ran.Stderr, disk)
	for _, w := range alice.List(t) {
		require.True(t, w.Over(), "%s", w)
	}
	require.Empty(t, r.Jobs(t))
	entries, err := os.ReadDir(disk)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing beside what fills the disk")
	require.NoError(t, os.Remove(filling))
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, alice.Submit(t, rig.Shell(2, "true", ""))).Phase())
}
