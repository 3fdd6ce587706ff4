package cluster

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// User of this machine, as whom a test runs commands.
type User struct {
	Name string
	UID  int
	GID  int
	Home string
	conf string
}

// User finds one of the cluster's users.
func (c *Cluster) User(t testing.TB, name string) User {
	t.Helper()
	u := FindUser(t, name)
	u.conf = c.Conf
	return u
}

// FindUser finds one of the users that every cluster has, where there is none; tests/install.sh makes them as well.
func FindUser(t testing.TB, name string) User {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatalf("%v; tests/install.sh makes the users of the tests", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	return User{Name: name, UID: uid, GID: gid, Home: u.HomeDir}
}

// Env is the environment of a fresh login, with the cluster in it.
func (u User) Env() []string {
	return []string{"HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name, "SHELL=/bin/bash", "PATH=" + path, "SLURM_CONF=" + u.conf, "LANG=C.UTF-8"}
}

// Command is a command as this user, in their home, with only Env and what the caller adds.
func (u User) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = u.Env()
	cmd.Dir = u.Home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: []uint32{uint32(u.GID)}}}
	return cmd
}

// Ran is what a command left.
type Ran struct {
	Code   int
	Stdout string
	Stderr string
}

// Run runs a command as this user to its end, within two minutes.
func (u User) Run(t testing.TB, stdin io.Reader, name string, args ...string) Ran {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	cmd := u.Command(ctx, name, args...)
	var out, words bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &words
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("starting %s as %s: %v", name, u.Name, err)
	}
	return Ran{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: words.String()}
}

// Folder makes a folder of the user's own, mode 0700, that goes with the cluster.
func (c *Cluster) Folder(t testing.TB, u User) string {
	t.Helper()
	dir, err := os.MkdirTemp(c.Dir, u.Name+"-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, u.UID, u.GID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Test runs tests of the calling test's own program again, as another user: what a System does with the caller's uid
// can't be seen as root. pattern is that of -test.run; env is added to the user's.
func (c *Cluster) Test(t *testing.T, u User, pattern string, env ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := c.Folder(t, u)
	program := filepath.Join(dir, filepath.Base(self))
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	cmd := u.Command(ctx, program, "-test.run="+pattern, "-test.v", "-test.count=1")
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, append([]string{"TMPDIR=" + dir}, env...)...)
	out, err := cmd.CombinedOutput()
	t.Logf("as %s:\n%s", u.Name, out)
	if err != nil {
		t.Errorf("as %s: %v", u.Name, err)
	}
	if !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("no test matched %s", pattern)
	}
}
