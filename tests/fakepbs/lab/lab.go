// Package lab starts fake PBS clusters for tests.
package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/fakepbs"
)

// Lab is a running cluster.
type Lab struct {
	Dir string
	Bin string // the commands are in it
}

// Main runs a package's tests and removes the program that was built for them.
func Main(m *testing.M) int {
	defer Clean()
	return m.Run()
}

// Clean removes the program that was built for a process's tests, after the last of them.
func Clean() {
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
}

// program is built once for all tests of a process.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fakepbs")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "fakepbs")
	out, err := exec.Command("go", "build", "-o", path, "github.com/openai4s/hpc/tests/fakepbs/program").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the fake PBS: %w\n%s", err, out)
	}
	return path, nil
})

// Start runs a cluster until the test ends. Everything that its jobs started ends with it.
func Start(t testing.TB, c fakepbs.Config) *Lab {
	t.Helper()
	binary, err := program()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "pbs") // short: a socket's path has 108 bytes at most
	require.NoError(t, err)
	l := &Lab{Dir: dir, Bin: filepath.Join(dir, "bin")}
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755)) // every user's
	require.NoError(t, os.Mkdir(l.Bin, 0o755))
	for _, name := range append([]string{fakepbs.ServerCommand}, fakepbs.Commands...) {
		require.NoError(t, link(binary, filepath.Join(l.Bin, name)))
	}
	remote := filepath.Join(l.Bin, "pbs_tmrsh")
	require.NoError(t, os.Rename(remote, remote+fakepbs.ProgramSuffix))
	require.NoError(t, os.WriteFile(remote, []byte(fakepbs.Remote), 0o755))
	text, err := json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))

	server := exec.Command(filepath.Join(l.Bin, fakepbs.ServerCommand), dir)
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	stdin, err := server.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = server.Wait() // what matters is that it is over
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", fakepbs.SocketPath(dir))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, 10*time.Second, 5*time.Millisecond, "the fake server doesn't listen")
	return l
}

// link puts the program under a command's name: by a hard link, since the program finds its cluster by its own path.
func link(binary, path string) error {
	if os.Link(binary, path) == nil {
		return nil
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o755)
}

// Commands are the commands' paths by name, as site.toml takes them.
func (l *Lab) Commands() map[string]string {
	paths := map[string]string{}
	for _, name := range fakepbs.Commands {
		paths[name] = filepath.Join(l.Bin, name)
	}
	return paths
}

// OnPath puts the commands in front of the test's PATH.
func (l *Lab) OnPath(t *testing.T) { t.Setenv("PATH", l.Bin+":"+os.Getenv("PATH")) }

// Configure changes the running cluster.
func (l *Lab) Configure(t testing.TB, c fakepbs.Config) {
	t.Helper()
	require.NoError(t, fakepbs.Configure(l.Dir, c))
}

// LoseHost ends everything on a host, and nobody is told.
func (l *Lab) LoseHost(t testing.TB, host string) {
	t.Helper()
	require.NoError(t, fakepbs.LoseHost(l.Dir, host))
}

// ReturnHost brings a lost host back, empty.
func (l *Lab) ReturnHost(t testing.TB, host string) {
	t.Helper()
	require.NoError(t, fakepbs.ReturnHost(l.Dir, host))
}

// Run runs a command of the cluster in a folder and returns what it printed and its exit code.
func (l *Lab) Run(t testing.TB, dir, stdin, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(l.Bin, name), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TZ=UTC")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	_ = cmd.Run() // the code says it
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// EndHanging kills the commands of a name that hang, and returns how many there were.
func (l *Lab) EndHanging(t testing.TB, name string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	ended := 0
	for _, link := range links {
		path, err := os.Readlink(link)
		if err != nil || path != filepath.Join(l.Bin, name) {
			continue // gone, or not ours
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		require.NoError(t, err)
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			ended++
		}
	}
	return ended
}
