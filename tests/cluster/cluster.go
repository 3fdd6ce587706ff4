// Package cluster brings up a real Slurm for a test: several nodes on this one machine, out of the distribution's own
// packages, with unprivileged users to submit jobs as. The shell scripts beside this file do the work and can be used
// by hand; they are embedded, so a test binary carries them along.
package cluster

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed *.sh
var scripts embed.FS

// Names of the users that every cluster has: two who submit jobs, and one for a site daemon.
const (
	Alice   = "o4s-alice"
	Bob     = "o4s-bob"
	Service = "o4s-gw"
)

// Options of a cluster; the zero value is four nodes without GPUs and without accounting.
type Options struct {
	Nodes      int // 0: 4
	CPUs       int // pretended, of each node; 0: 4
	GPUs       int // pretended, of each node
	GPUType    string
	Accounting bool
	Store      string            // AccountingStoreFlags; "": no comment, script or environment is kept
	Cgroup     bool              // memory limits that bite
	Set        []string          // lines of slurm.conf, "KillWait=2"; "@" in a value is the cluster's folder
	Files      map[string]string // beside slurm.conf, by name; whoever runs it may execute them
}

// Cluster is one that is up.
type Cluster struct {
	Dir  string // its state, readable by all
	Conf string // the value of SLURM_CONF
	args []string
	bin  string // the scripts
}

// Up brings a cluster up and takes it down when the test ends. Without root, or without Slurm (install.sh), the test fails:
// whoever asks for a real cluster must not be told that all is well without one.
func Up(t testing.TB, o Options) *Cluster {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("a real Slurm cluster needs root; run this test as root")
	}
	for _, name := range []string{"slurmctld", "slurmd", "sbatch", "munge"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is missing: tests/cluster/install.sh --accounting installs what a cluster needs", name)
		}
	}
	if o.Nodes == 0 {
		o.Nodes = 4
	}
	dir, err := os.MkdirTemp("/tmp", "o4s-slurm-")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Dir: dir, Conf: filepath.Join(dir, "etc", "slurm.conf"), bin: filepath.Join(dir, "bin")}
	if err := c.unpack(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.down(t) })

	for name, text := range o.Files {
		path := filepath.Join(dir, "etc", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}

	// Ports are looked for and taken by one test process at a time.
	lock, err := os.OpenFile("/tmp/o4s-slurm.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	port, err := freePorts(o.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	c.args = o.arguments(port, dir)
	c.up(t)
	return c
}

func (o Options) arguments(port int, dir string) []string {
	args := []string{"--nodes", strconv.Itoa(o.Nodes), "--gpus", strconv.Itoa(o.GPUs), "--port", strconv.Itoa(port),
		"--users", strings.Join([]string{Alice, Bob, Service}, ",")}
	add := func(on bool, words ...string) {
		if on {
			args = append(args, words...)
		}
	}
	add(o.CPUs != 0, "--cpus", strconv.Itoa(o.CPUs))
	add(o.GPUType != "", "--gpu-type", o.GPUType)
	add(o.Accounting, "--accounting")
	add(o.Store != "", "--store", o.Store)
	add(o.Cgroup, "--cgroup")
	for _, line := range o.Set {
		add(true, "--set", strings.Replace(line, "=@", "="+dir, 1))
	}
	return append(args, dir)
}

// unpack writes the scripts into the state folder.
func (c *Cluster) unpack() error {
	if err := os.Mkdir(c.bin, 0o755); err != nil {
		return err
	}
	names, err := scripts.ReadDir(".")
	if err != nil {
		return err
	}
	for _, n := range names {
		text, err := scripts.ReadFile(n.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(c.bin, n.Name()), text, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Heal starts again whatever of the cluster is not up: a killed node, a stopped daemon.
func (c *Cluster) Heal(t testing.TB) {
	t.Helper()
	c.up(t)
}

func (c *Cluster) up(t testing.TB) {
	t.Helper()
	if text, err := c.script("up.sh", c.args...); err != nil {
		t.Fatalf("bringing the cluster up: %v\n%s", err, text)
	}
}

// down takes the cluster down and removes it; of a failed test the controller's last words are shown.
func (c *Cluster) down(t testing.TB) {
	if t.Failed() {
		if log, err := os.ReadFile(filepath.Join(c.Dir, "log", "ctld", "slurmctld.log")); err == nil {
			t.Logf("slurmctld said last:\n%s", log[max(0, len(log)-4000):])
		}
	}
	if _, err := os.Stat(c.Conf); err != nil {
		os.RemoveAll(c.Dir)
		return
	}
	if text, err := c.script("down.sh", "--purge", c.Dir); err != nil {
		t.Errorf("taking the cluster down: %v\n%s", err, text)
	}
}

// KillNode is the crash of a node: its slurmd and all that ran on it are gone at once. Heal brings it back.
func (c *Cluster) KillNode(t testing.TB, node string) {
	t.Helper()
	if text, err := c.script("kill-node.sh", c.Dir, node); err != nil {
		t.Fatalf("killing node %s: %v\n%s", node, err, text)
	}
}

// Stop ends one daemon: slurmctld, slurmdbd or munged. Heal brings it back.
func (c *Cluster) Stop(t testing.TB, daemon string) {
	t.Helper()
	file, ok := map[string]string{"slurmctld": "run/ctld/slurmctld.pid", "slurmdbd": "run/ctld/slurmdbd.pid", "munged": "munge/munged.pid"}[daemon]
	if !ok {
		t.Fatalf("no daemon is called %s", daemon)
	}
	if !end(t, filepath.Join(c.Dir, file), daemon) {
		t.Fatalf("%s is not up", daemon)
	}
}

// end sends TERM to the daemon of a pid file and waits until it is gone; false where it isn't up.
func end(t testing.TB, pidFile, daemon string) bool {
	t.Helper()
	text, err := os.ReadFile(pidFile)
	if os.IsNotExist(err) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	up := func() bool {
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err == nil && strings.Contains(path, daemon)
	}
	if !up() {
		return false
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(30 * time.Second); time.Now().Before(late); <-tick.C {
		if !up() {
			return true
		}
	}
	t.Fatalf("%s (pid %d) didn't end", daemon, pid)
	return true
}

// Slurm runs one of its commands as root, with the time and language of a test, and returns its standard output.
func (c *Cluster) Slurm(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = []string{"PATH=" + path, "SLURM_CONF=" + c.Conf, "LC_ALL=C", "TZ=UTC"}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out)
}

// StartNow lets a requeued job start that Slurm would hold back for two minutes, and returns once it isn't PENDING.
func (c *Cluster) StartNow(t testing.TB, job string) {
	t.Helper()
	// A job that starts in the very second of its requeue is killed: slurmd holds its credential for a revoked one.
	<-time.After(2 * time.Second)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(time.Minute); time.Now().Before(late); <-tick.C {
		state := c.Slurm(t, "squeue", "--noheader", "--states=all", "--format=%T", "--jobs="+job)
		if strings.TrimSpace(state) != "PENDING" {
			return
		}
		cmd := exec.Command("scontrol", "update", "JobId="+job, "StartTime=now")
		cmd.Env = []string{"PATH=" + path, "SLURM_CONF=" + c.Conf, "LC_ALL=C"}
		_ = cmd.Run() // refused once it has started
	}
	t.Fatalf("job %s doesn't start", job)
}

const path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

func (c *Cluster) script(name string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Env = []string{"PATH=" + path, "LC_ALL=C", "HOME=/root"}
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	// The daemons inherit no pipe of ours that Wait would wait for.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return regexp.MustCompile(`(?m)^export .*\n`).ReplaceAllString(text.String(), ""), err
}

// FirstPortVariable says where the search for ports begins, 17000 where it isn't set: the lock that keeps two searches
// apart doesn't reach into another root folder.
const FirstPortVariable = "O4S_FIRST_PORT"

// freePorts finds a range that nobody listens on: the first port, two more for accounting, and one a node from the
// hundred-and-first on.
func freePorts(nodes int) (int, error) {
	first := 17000
	if text := os.Getenv(FirstPortVariable); text != "" {
		var err error
		if first, err = strconv.Atoi(text); err != nil {
			return 0, fmt.Errorf("%s: %w", FirstPortVariable, err)
		}
	}
	offsets := []int{0, 1, 2}
	for n := range nodes {
		offsets = append(offsets, 101+n)
	}
	for port := first; port+101+nodes < 32000; port += 200 + nodes {
		if !slices.ContainsFunc(offsets, func(o int) bool { return taken(port + o) }) {
			return port, nil
		}
	}
	return 0, errors.New("no free range of ports for a cluster")
}

func taken(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return true
	}
	l.Close()
	return false
}
