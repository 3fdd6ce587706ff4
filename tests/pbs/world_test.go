// Package pbs_test runs the real programs against a PBS: the fake of tests/fakepbs, or with -tags live the commands
// that are in PATH. The tests are the same.
package pbs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// programs is the folder that the real programs were built into, on a file system that the compute nodes see.
var programs string

func TestMain(m *testing.M) { os.Exit(withPrograms(m)) }

// programsVariable names a folder with programs that are built already, where Go can't be used.
const programsVariable = "OPENAI4S_TEST_PROGRAMS"

func withPrograms(m *testing.M) int {
	if programs = os.Getenv(programsVariable); programs != "" {
		return runAll(m)
	}
	dir, err := os.MkdirTemp(shared(), "o4s-bin")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Setenv(programsVariable, dir)) // for the rig
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir+"/", "github.com/openai4s/hpc/cmd/openai4s", "github.com/openai4s/hpc/cmd/openai4s-agent", "github.com/openai4s/hpc/cmd/openai4s-gateway")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the programs: %v\n%s", err, out)
		return 1
	}
	programs = dir
	return runAll(m)
}

// world is a user of a PBS site: a home, a site file and the commands.
type world struct {
	t     *testing.T
	dir   string // on a file system that the compute nodes see; the fake's users have their home there too
	state string // what the gateway keeps, on this host; short, since there are sockets in it
	site  string
	env   []string
	pbs   cluster
	user  account
}

// account is who runs the commands.
type account struct {
	name       string
	credential *syscall.Credential // nil: whoever runs the test
}

// owns hands files of the test to the account.
func (a account) owns(paths ...string) error {
	if a.credential == nil {
		return nil
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.Chown(path, int(a.credential.Uid), int(a.credential.Gid)))
	}
	return errors.Join(errs...)
}

// cluster is what differs between the fake and a real PBS.
type cluster interface {
	// PATH for the user's commands.
	path() string
	// user is who submits.
	user(t *testing.T) account
	// profile is the text of the site file's profile.
	profile() string
	// gateway is more text of the [gateway] table.
	gateway() string
	// patience is how long anything may take.
	patience() time.Duration
}

// newWorld makes a user at a cluster; gateway is text for the site file's [gateway] table.
func newWorld(t *testing.T, c cluster, gateway string) *world {
	t.Helper()
	dir, err := os.MkdirTemp(shared(), "o4s")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("left for a look: %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	state, err := os.MkdirTemp("/tmp", "o4st")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(state) })
	w := &world{t: t, dir: dir, state: state, site: filepath.Join(dir, "site.toml"), pbs: c, user: c.user(t)}
	require.NoError(t, w.user.owns(dir, state))
	w.write("site.toml", fmt.Sprintf(`[site]
name = "p"
scheduler = "pbs"
runtime_dir = %q

[gateway]
%s
%s

[profiles.default]
%s
`, filepath.Join(dir, "run"), c.gateway(), gateway, c.profile()))
	w.env = []string{
		"HOME=" + home(dir), "XDG_STATE_HOME=" + state, "PATH=" + programs + ":" + c.path(), "OPENAI4S_SITE=" + w.site,
		"LANG=C.UTF-8", "SHELL=/bin/sh", "USER=" + w.user.name, "LOGNAME=" + w.user.name,
	}
	for _, name := range []string{"PBS_CONF_FILE", "PBS_SERVER", "PBS_EXEC", "OPENAI4S_WORKER_ADVERTISE"} {
		if v := os.Getenv(name); v != "" {
			w.env = append(w.env, name+"="+v)
		}
	}
	return w
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o600))
	for p := path; p != w.dir; p = filepath.Dir(p) {
		require.NoError(w.t, w.user.owns(p))
	}
	return path
}

// ended is a command that is over.
type ended struct {
	stdout, stderr string
	code           int
}

// started is a command that runs.
type started struct {
	w      *world
	cmd    *exec.Cmd
	stdout bytes.Buffer
	done   chan struct{}
	log    string // stderr as it grows
}

func (w *world) start(name string, args ...string) *started {
	w.t.Helper()
	return w.startAs(w.user, name, args...)
}

func (w *world) startAs(who account, name string, args ...string) *started {
	w.t.Helper()
	path := filepath.Join(programs, name)
	if _, err := os.Stat(path); err != nil {
		found := ""
		for dir := range strings.SplitSeq(w.pbs.path(), ":") {
			if info, err := os.Stat(filepath.Join(dir, name)); found == "" && err == nil && !info.IsDir() {
				found = filepath.Join(dir, name)
			}
		}
		require.NotEmpty(w.t, found, "%s is not in PATH", name)
		path = found
	}
	s := &started{w: w, cmd: exec.Command(path, args...), done: make(chan struct{})}
	s.log = filepath.Join(w.t.TempDir(), "stderr")
	errs, err := os.Create(s.log)
	require.NoError(w.t, err)
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = w.dir, w.env, &s.stdout, errs
	if who.credential != nil {
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who.credential}
	}
	if who.name != w.user.name {
		s.cmd.Dir, s.cmd.Env = "/", []string{"HOME=/", "USER=" + who.name, "LOGNAME=" + who.name, "PATH=" + programs + ":" + w.pbs.path(), "OPENAI4S_SITE=" + w.site}
	}
	require.NoError(w.t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait() // the code says it
		errs.Close()
		close(s.done)
	}()
	w.t.Cleanup(func() {
		select {
		case <-s.done:
		default:
			_ = s.cmd.Process.Kill() // a test that failed leaves it
			<-s.done
		}
	})
	return s
}

// said is what the command wrote to standard error so far.
func (s *started) said() string {
	text, err := os.ReadFile(s.log)
	require.NoError(s.w.t, err)
	return string(text)
}

func (s *started) wait() ended {
	s.w.t.Helper()
	select {
	case <-s.done:
	case <-time.After(s.w.pbs.patience()):
		s.w.t.Fatalf("%v doesn't end; it said:\n%s%s", s.cmd.Args, s.stdout.String(), s.said())
	}
	return ended{s.stdout.String(), s.said(), s.cmd.ProcessState.ExitCode()}
}

func (w *world) run(name string, args ...string) ended {
	w.t.Helper()
	return w.start(name, args...).wait()
}

// until waits for a condition.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	require.Eventually(w.t, holds, w.pbs.patience(), 50*time.Millisecond, what)
}

var workloadID = regexp.MustCompile(`wl_[0-9a-f]{12}`)

// id waits for the workload's id in what a submit says.
func (s *started) id() string {
	s.w.t.Helper()
	var id string
	s.w.until("no workload is named", func() bool {
		id = workloadID.FindString(s.said())
		return id != ""
	})
	return id
}

// status of a workload, as --json says it.
type status struct {
	Workload struct {
		ID      string `json:"id"`
		Phase   string `json:"phase"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
		Epoch   int    `json:"epoch"`
		Output  string `json:"output"`
		Job     struct {
			System string `json:"system"`
			ID     string `json:"id"`
		} `json:"job"`
		Result *struct {
			ExitCode int    `json:"exit_code"`
			Rank     int    `json:"rank"`
			Host     string `json:"host"`
		} `json:"result"`
	} `json:"workload"`
}

func (w *world) status(id string) status {
	w.t.Helper()
	e := w.run("openai4s", "status", "--embedded", "--json", id)
	require.Zero(w.t, e.code, e.stderr)
	var s status
	require.NoError(w.t, json.Unmarshal([]byte(e.stdout), &s), e.stdout)
	if s.Workload.ID == "" { // the workload itself is the document
		require.NoError(w.t, json.Unmarshal([]byte(e.stdout), &s.Workload), e.stdout)
	}
	require.NotEmpty(w.t, s.Workload.ID, e.stdout)
	return s
}

// job is what qstat says of a job, live or finished.
func (w *world) job(id string) string {
	w.t.Helper()
	return w.run("qstat", "-x", "-f", id).stdout
}

// gone waits until the scheduler says that a job is over and returns its record.
func (w *world) gone(id string) string {
	w.t.Helper()
	var text string
	w.until("job "+id+" is not over", func() bool {
		text = w.job(id)
		return strings.Contains(text, "job_state = F")
	})
	return strings.ReplaceAll(text, "\n\t", "")
}

// silent waits until files of the workdir, that processes write to again and again, don't change any more.
func (w *world) silent(files ...string) {
	w.t.Helper()
	for _, name := range files {
		path := filepath.Join(w.dir, name)
		last, since := w.read(path), time.Now()
		w.until("what writes to "+name+" lives on", func() bool {
			if text := w.read(path); text != last {
				last, since = text, time.Now()
			}
			return time.Since(since) > 3*time.Second
		})
	}
}

func (w *world) read(path string) string {
	w.t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(w.t, err)
	return string(text)
}
