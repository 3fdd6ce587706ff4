package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Munged is a MUNGE daemon alone, without a cluster around it.
type Munged struct {
	Socket string
	dir    string
}

// Munge starts one, as whoever runs the test, until the test ends.
func Munge(t testing.TB) *Munged {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "o4s-munge-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // callers reach the socket
		t.Fatal(err)
	}
	key := make([]byte, 128)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Munged{Socket: filepath.Join(dir, "socket"), dir: dir}
	m.Start(t)
	t.Cleanup(func() { m.Stop(t) })
	return m
}

// Start starts it, again after Stop; it answers once this returns.
func (m *Munged) Start(t testing.TB) {
	t.Helper()
	name, err := exec.LookPath("munged")
	if err != nil {
		name = "/usr/sbin/munged"
	}
	in := func(name string) string { return filepath.Join(m.dir, name) }
	out, err := exec.Command(name, "--key-file="+in("key"), "--socket="+m.Socket, "--pid-file="+in("pid"),
		"--log-file="+in("log"), "--seed-file="+in("seed")).CombinedOutput()
	if err != nil {
		t.Fatalf("starting munged (tests/cluster/install.sh installs it): %v\n%s", err, out)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := exec.CommandContext(ctx, "munge", "--socket="+m.Socket, "--no-input", "--output=/dev/null").Run()
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatal("munged doesn't answer")
}

// Stop ends it. One that isn't up is left alone.
func (m *Munged) Stop(t testing.TB) {
	t.Helper()
	end(t, filepath.Join(m.dir, "pid"), "munged")
}

// MungeCommands writes munge and unmunge for a socket that isn't the usual one into dir, and returns their paths. The
// real programs take a socket by an option alone.
func MungeCommands(t testing.TB, dir, socket string) (munge, unmunge string) {
	t.Helper()
	write := func(name string) string {
		path := filepath.Join(dir, name)
		text := fmt.Sprintf("#!/bin/sh\nexec /usr/bin/%s --socket=%s \"$@\"\n", name, socket)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("munge"), write("unmunge")
}

// MungeSocket is that of the cluster's own munged.
func (c *Cluster) MungeSocket() string { return filepath.Join(c.Dir, "munge", "socket") }
