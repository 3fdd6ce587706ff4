package rig

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeftoversAreFound: a search that finds nothing proves something only if it can find.
func TestLeftoversAreFound(t *testing.T) {
	r := &Rig{Dir: t.TempDir(), Port: freePort(t)}
	require.Empty(t, r.Leftovers(t))

	cmd := exec.Command("sleep", "600")
	cmd.Env = []string{"SOMEWHERE=" + r.Dir}
	require.NoError(t, cmd.Start())
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port))
	require.NoError(t, err)
	locked, err := os.Create(filepath.Join(r.Dir, "lock"))
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(locked.Fd()), syscall.LOCK_EX))

	var left string
	Await(t, Patience, "the process to be what it is to become", func() bool {
		left = strings.Join(r.Leftovers(t), "\n")
		return strings.Contains(left, fmt.Sprintf("process %d ", cmd.Process.Pid))
	})
	require.Contains(t, left, "sleep 600")
	require.Contains(t, left, fmt.Sprintf("socket 0100007F:%04X", r.Port))
	require.Contains(t, left, "lock on "+locked.Name())

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NoError(t, listener.Close())
	require.NoError(t, locked.Close())
	require.Empty(t, r.Leftovers(t))
}
