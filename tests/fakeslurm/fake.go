// Package fakeslurm is a Slurm that fits into a test: sbatch, squeue, sacct, scancel, scontrol and sacctmgr on PATH,
// with the output forms recorded from the real ones, a state shared by all of them in one folder, jobs that are real
// processes and end by themselves, and faults that can be switched on.
//
// The commands are links to one program (program/), built once for all tests of a process; it is removed by Run, in the
// test package's TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(fakeslurm.Run(m)) }
package fakeslurm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Commands that a Fake puts on PATH.
var Commands = []string{"sbatch", "squeue", "sacct", "scancel", "scontrol", "sacctmgr"}

// supervisor is the name under which the program watches over one job.
const supervisor = "slurmstepd"

// program builds what the commands are.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fakeslurm")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "fakeslurm")
	out, err := exec.Command("go", "build", "-o", path, "github.com/openai4s/hpc/tests/fakeslurm/program").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the fake Slurm: %w\n%s", err, out)
	}
	built = dir
	return path, nil
})

// built is the folder of the program, once there is one.
var built string

// Run runs a package's tests and removes the program.
func Run(m *testing.M) int {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	return code
}

// Options of a Fake; the zero value is a cluster of four nodes, without accounting, of version 22.05.
type Options struct {
	Nodes      int           // n1 …; 0: 4
	Accounting bool          // sacct answers, and goes on to after MinJobAge
	MinJobAge  time.Duration // how long squeue knows finished jobs; 0: 300 s
	Minute     time.Duration // how long a minute of a job's walltime takes; 0: a minute
	KillWait   time.Duration // between TERM and KILL; 0: a second
	Modern     bool          // exit codes as in 24.11 and later, "3:0" instead of a wait status
	Enforce    bool          // sbatch refuses more nodes than there are, as with EnforcePartLimits
	Private    bool          // PrivateData=jobs
}

// Fake is one cluster. Its Bin goes to the front of PATH.
type Fake struct {
	Bin string
	dir string
}

// New makes a cluster whose jobs are ended, and whose folder is removed, with the test.
func New(t testing.TB, o Options) *Fake {
	t.Helper()
	// TempDir's names hold the test's own, which may hold what no PATH takes.
	dir, err := os.MkdirTemp("", "fakeslurm")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{Bin: filepath.Join(dir, "bin"), dir: dir}
	for _, sub := range []string{"bin", "jobs"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range append([]string{supervisor}, Commands...) {
		if err := os.Symlink(binary, filepath.Join(f.Bin, c)); err != nil {
			t.Fatal(err)
		}
	}
	if o.Nodes == 0 {
		o.Nodes = 4
	}
	if o.MinJobAge == 0 {
		o.MinJobAge = 300 * time.Second
	}
	if o.Minute == 0 {
		o.Minute = time.Minute
	}
	if o.KillWait == 0 {
		o.KillWait = time.Second
	}
	f.change(t, func(c *cluster) { c.Options, c.Next = o, 1 })
	t.Cleanup(func() { f.end(t) })
	return f
}

// end kills the jobs and waits for their supervisors, which would write into a folder that is gone.
func (f *Fake) end(t testing.TB) {
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for live := true; live; <-tick.C {
		live = false
		f.change(t, func(c *cluster) {
			for i := range c.Jobs {
				if j := &c.Jobs[i]; j.Supervised {
					live = true
					j.Killer = os.Getuid() + 1 // one that is just starting ends by itself
					if j.Group > 0 {
						syscall.Kill(-j.Group, syscall.SIGKILL)
					}
				}
			}
		})
		if live && time.Now().After(deadline) {
			t.Errorf("jobs of the fake Slurm in %s don't end", f.dir)
			return
		}
	}
	if err := os.RemoveAll(f.dir); err != nil {
		t.Error(err)
	}
}

// Use puts the cluster's commands at the front of this process's PATH for the rest of the test.
func (f *Fake) Use(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", f.Bin+":"+os.Getenv("PATH"))
}

// Commands are the absolute paths of the commands, as a site file may name them.
func (f *Fake) Commands() map[string]string {
	paths := map[string]string{}
	for _, c := range Commands {
		paths[c] = filepath.Join(f.Bin, c)
	}
	return paths
}

// Break switches faults of a command on, "*" for all commands. Each stays for as many runs as it says.
func (f *Fake) Break(t testing.TB, command string, faults ...Fault) {
	t.Helper()
	f.change(t, func(c *cluster) {
		if c.Faults == nil {
			c.Faults = map[string][]Fault{}
		}
		c.Faults[command] = append(c.Faults[command], faults...)
	})
}

// Mend switches all faults off.
func (f *Fake) Mend(t testing.TB) {
	t.Helper()
	f.change(t, func(c *cluster) { c.Faults = nil })
}

// Jobs of the cluster, in the order of their submission, those included that no command tells of any more.
func (f *Fake) Jobs(t testing.TB) []Job {
	t.Helper()
	var jobs []Job
	f.change(t, func(c *cluster) { jobs = append(jobs, c.Jobs...) })
	return jobs
}

// Set changes one job, such as its State and Reason, to what the cluster is to say of it.
func (f *Fake) Set(t testing.TB, id int, change func(*Job)) {
	t.Helper()
	f.change(t, func(c *cluster) {
		if j := c.job(id); j != nil {
			change(j)
		}
	})
}

// Ran returns the argument lists that a command was run with, oldest first.
func (f *Fake) Ran(t testing.TB, command string) [][]string {
	t.Helper()
	var all [][]string
	f.change(t, func(c *cluster) {
		for _, r := range c.Runs {
			if r[0] == command {
				all = append(all, r[1:])
			}
		}
	})
	return all
}

func (f *Fake) change(t testing.TB, change func(*cluster)) {
	t.Helper()
	if err := withCluster(f.dir, change); err != nil {
		t.Fatal(err)
	}
}

// cluster is the state that all commands share, kept as JSON under a lock.
type cluster struct {
	Options Options
	Next    int
	Jobs    []Job
	Faults  map[string][]Fault
	Runs    [][]string
}

func (c *cluster) job(id int) *Job {
	for i := range c.Jobs {
		if c.Jobs[i].ID == id {
			return &c.Jobs[i]
		}
	}
	return nil
}

func (c *cluster) bySerial(n int) *Job {
	for i := range c.Jobs {
		if c.Jobs[i].Serial == n {
			return &c.Jobs[i]
		}
	}
	return nil
}

// withCluster reads the state in dir, lets change work on it and writes it back, one process at a time.
func withCluster(dir string, change func(*cluster)) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	var c cluster
	path := filepath.Join(dir, "state.json")
	if b, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(b, &c); err != nil {
			return err
		}
	}
	change(&c)
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// me is the calling user's name; a number where there is none.
func me() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}
