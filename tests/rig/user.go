package rig

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai4s/hpc/tests/cluster"
)

// account is a user of this machine.
type account struct {
	name     string
	uid, gid int
}

// manyUsers tells whether the rig's users are users of the machine, and not all whoever runs the test.
func (r *Rig) manyUsers() bool {
	return r.options.Cluster != nil || r.options.PBS != nil && os.Getuid() == 0
}

// account finds one of the rig's users.
func (r *Rig) account(t testing.TB, name string) account {
	t.Helper()
	if r.manyUsers() {
		u := cluster.FindUser(t, name)
		return account{name: u.Name, uid: u.UID, gid: u.GID}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return account{name: me.Username, uid: os.Getuid(), gid: os.Getgid()}
}

// dress makes a command that account's, in a process group of its own.
func (a account) dress(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 && a.uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: []uint32{uint32(a.gid)}}
	}
}

// environment of a fresh login whose home is inside the rig.
func (r *Rig) environment(name, home string) []string {
	path := "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
	if r.options.PBS != nil {
		path = r.options.PBS.Bin + ":" + path
	}
	if r.options.Path != "" {
		path = r.options.Path + ":" + path
	}
	env := []string{"HOME=" + home, "USER=" + name, "LOGNAME=" + name, "SHELL=/bin/bash", "PATH=" + path, "LANG=C.UTF-8",
		"OPENAI4S_SITE=" + r.Site}
	if r.options.Cluster != nil {
		env = append(env, "SLURM_CONF="+r.options.Cluster.Conf)
	}
	return env
}

// User of the rig, with a private home that is also where their commands run.
type User struct {
	Home string
	Name string
	UID  int
	Env  []string // added to every command of theirs

	rig     *Rig
	account account
}

// Alice submits jobs.
func (r *Rig) Alice(t testing.TB) *User {
	t.Helper()
	return r.user(t, cluster.Alice)
}

// Bob is somebody else.
func (r *Rig) Bob(t testing.TB) *User {
	t.Helper()
	return r.user(t, cluster.Bob)
}

func (r *Rig) user(t testing.TB, name string) *User {
	t.Helper()
	if u := r.users[name]; u != nil {
		return u
	}
	a := r.account(t, name)
	u := &User{Home: filepath.Join(r.Dir, name), Name: a.name, UID: a.uid, rig: r, account: a}
	if err := os.Mkdir(u.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(u.Home, a.uid, a.gid); err != nil {
		t.Fatal(err)
	}
	r.users[name] = u
	return u
}

// Write writes a file of the user's below their home and returns its path.
func (u *User) Write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(u.Home, name)
	for dir := filepath.Dir(path); dir != u.Home; dir = filepath.Dir(dir) {
		defer func() {
			if err := os.Chown(dir, u.account.uid, u.account.gid); err != nil {
				t.Fatal(err)
			}
		}()
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644),
		os.Chown(path, u.account.uid, u.account.gid)); err != nil {
		t.Fatal(err)
	}
	return path
}

// Copy copies a folder of the sources below the user's home and returns its path.
func (u *User) Copy(t testing.TB, dir, name string) string {
	t.Helper()
	to := filepath.Join(u.Home, name)
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(to, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, u.account.uid, u.account.gid))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Read reads a file below the user's home, or an absolute path.
func (u *User) Read(t testing.TB, path string) string {
	t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(u.Home, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Ran is what a command left.
type Ran struct {
	Args   []string
	Code   int // 128 + signal where one ended it
	Stdout string
	Stderr string
}

// Doc is its standard output as one JSON object.
func (r Ran) Doc(t testing.TB) Doc {
	t.Helper()
	return ParseDoc(t, r.Stdout)
}

// Command is any program as the user, in their home.
func (u *User) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	u.account.dress(cmd)
	cmd.Env = slices.Concat(u.rig.environment(u.Name, u.Home), u.rig.options.Env, u.Env)
	cmd.Dir = u.Home
	return cmd
}

// Run runs openai4s to its end, within two minutes.
func (u *User) Run(t testing.TB, args ...string) Ran {
	t.Helper()
	return u.Exec(t, u.rig.Program("openai4s"), args...)
}

// Exec runs any program to its end, within two minutes.
func (u *User) Exec(t testing.TB, name string, args ...string) Ran {
	t.Helper()
	b := u.start(t, u.Command(name, args...))
	return b.Wait(t, 2*time.Minute)
}

// Go starts openai4s in the background. One that is still there when the test ends is killed.
func (u *User) Go(t testing.TB, args ...string) *Background {
	t.Helper()
	return u.start(t, u.Command(u.rig.Program("openai4s"), args...))
}

// Background is a command that runs.
type Background struct {
	cmd   *exec.Cmd
	out   lockedBuffer
	words lockedBuffer
	gone  chan struct{}
}

func (u *User) start(t testing.TB, cmd *exec.Cmd) *Background {
	t.Helper()
	b := &Background{cmd: cmd, gone: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &b.out, &b.words
	cmd.WaitDelay = 5 * time.Second // what it left behind may hold its pipes
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s as %s: %v", cmd.Path, u.Name, err)
	}
	go func() {
		defer close(b.gone)
		_ = cmd.Wait() // the code is in cmd.ProcessState
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // gone already, as a rule
		<-b.gone
	})
	return b
}

// PID of the process.
func (b *Background) PID() int { return b.cmd.Process.Pid }

// Signal sends the process one.
func (b *Background) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signalling %v: %v", b.cmd.Args, err)
	}
}

// Stderr is what it said so far.
func (b *Background) Stderr() string { return b.words.String() }

// Stdout is what it printed so far.
func (b *Background) Stdout() string { return b.out.String() }

// Wait waits for its end.
func (b *Background) Wait(t testing.TB, within time.Duration) Ran {
	t.Helper()
	select {
	case <-b.gone:
	case <-time.After(within):
		t.Fatalf("%v didn't end within %s\nstdout: %s\nstderr: %s", b.cmd.Args, within, b.out.String(), b.words.String())
	}
	code := b.cmd.ProcessState.ExitCode()
	if status, ok := b.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return Ran{Args: b.cmd.Args, Code: code, Stdout: b.out.String(), Stderr: b.words.String()}
}

// lockedBuffer is written by a command and read by a test meanwhile.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Clone(l.b.String())
}
