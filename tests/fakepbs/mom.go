package fakepbs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// task is a process that a host started for a job, the leader of a session of its own.
type task struct {
	host string
	pid  int
	done bool
	wait chan int // gets the exit code, unless the host is lost
}

// start runs a job's script on its first host.
func (s *server) start(j *job, slots []slot, now time.Time) {
	j.runs++
	out, err := s.openOutput(j)
	if err != nil {
		s.failedStart(j, now)
		return
	}
	defer out.Close()
	j.slots, j.started, j.modified, j.obit, j.exit = slots, now, now, time.Time{}, nil
	j.state, j.substate, j.ending, j.killAt = "R", 41, "", time.Time{}
	j.comment = fmt.Sprintf("Job run at %s on %s", now.Format("Mon Jan 02 at 15:04"), j.execVnode())
	if err := s.writeNodeFile(j); err != nil {
		s.failedStart(j, now)
		return
	}
	script := filepath.Join(s.dir, "jobs", j.id()+".SC")
	if err := errors.Join(os.WriteFile(script, j.script, 0o700), j.give(script)); err != nil {
		s.failedStart(j, now)
		return
	}
	shell := j.shell
	if shell == "" {
		shell = "/bin/sh"
	}
	path := "/usr/local/bin:/usr/bin:/bin:" + filepath.Join(s.dir, "bin")
	env := append(s.taskEnv(j, 0, 1), "PATH="+path, "PBS_NODEFILE="+s.nodeFile(j))
	t, err := s.run(j, slots[0].host, []string{shell, script}, env, j.mask(), out)
	if err != nil {
		s.scriptEnded(j, 254)
		return
	}
	j.session = t.pid
	runs := j.runs
	go func() {
		code := <-t.wait
		if code >= 256 { // the script's shell runs under a login shell, which tells of a signal as shells do
			code += 128 - 256
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if j.running() && j.runs == runs {
			s.scriptEnded(j, code)
		}
	}()
}

// failedStart counts an attempt to start a job that came to nothing.
func (s *server) failedStart(j *job, now time.Time) {
	code := -3
	j.exit, j.state, j.substate, j.slots = &code, "Q", 10, nil
	j.started, j.obit, j.modified = now, now, now
	j.next = now.Add(s.config.RetryDelay)
	if j.runs >= maxTries {
		j.state, j.substate, j.hold, j.eligible = "H", 20, "s", time.Time{}
		j.comment = "job held, too many failed attempts to run"
	}
}

// openOutput opens the job's output: its final file with -koed, one in the spool otherwise.
func (s *server) openOutput(j *job) (*os.File, error) {
	path := filepath.Join(s.dir, "spool", j.id()+".OU")
	if strings.Contains(j.keep, "d") {
		path = j.outputPath()
	}
	mode := os.FileMode(0o600)
	if j.umask != "" {
		mask, err := strconv.ParseUint(j.umask, 8, 32)
		if err == nil {
			mode = 0o666 &^ os.FileMode(mask)
		}
	}
	var f *os.File
	open := func() (err error) {
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, mode); err == nil {
			err = f.Chmod(mode)
		}
		return err
	}
	if !strings.Contains(j.keep, "d") { // the spool is the server's
		err := errors.Join(open(), j.give(path))
		return f, err
	}
	err := j.asOwner(open)
	return f, err
}

// deliver brings spooled output to where it belongs and tells whether that went well.
func (s *server) deliver(j *job) bool {
	text, err := os.ReadFile(filepath.Join(s.dir, "spool", j.id()+".OU"))
	if err != nil {
		return false
	}
	path := j.outputPath()
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, j.id()+".OU")
	}
	return j.asOwner(func() error { return os.WriteFile(path, text, 0o600) }) == nil
}

// tell adds to a job's output.
func (s *server) tell(j *job, text string) {
	if f, err := s.openOutput(j); err == nil {
		_, _ = f.WriteString(text)
		f.Close()
	}
}

func (s *server) nodeFile(j *job) string { return filepath.Join(s.dir, "aux", j.id()) }

// nodeLines are a job's slots as its node file lists them: a line for each process of a chunk, at least one.
func (s *server) nodeLines(j *job) []slot {
	var out []slot
	for i := range j.slots {
		sl := j.slots[i]
		if s.config.ReverseFile {
			sl = j.slots[len(j.slots)-1-i]
		}
		for range max(sl.chunk.mpiprocs, 1) {
			out = append(out, sl)
		}
	}
	return out
}

func (s *server) writeNodeFile(j *job) error {
	var b strings.Builder
	for _, sl := range s.nodeLines(j) {
		b.WriteString(sl.host + "\n")
	}
	return os.WriteFile(s.nodeFile(j), []byte(b.String()), 0o644)
}

func (j *job) mask() string {
	if j.umask != "" {
		return j.umask
	}
	return "077"
}

// taskEnv is what every task of a job sees: the variables of the submission, never what the script exported.
func (s *server) taskEnv(j *job, node, number int) []string {
	env := j.variables()
	for i := range env {
		env[i] = strings.NewReplacer(`\\`, `\`, `\,`, `,`, `\"`, `"`, `\'`, `'`).Replace(env[i])
	}
	return append(env,
		"HOME="+j.env["HOME"], "USER="+j.owner, "LOGNAME="+j.owner, "SHELL="+j.env["SHELL"],
		"PBS_JOBNAME="+j.name, "PBS_JOBID="+j.id(), "PBS_QUEUE="+j.queue, "PBS_JOBCOOKIE="+j.cookie, "PBS_JOBDIR="+j.env["HOME"],
		"PBS_NODENUM="+strconv.Itoa(node), fmt.Sprintf("PBS_TASKNUM=%X", number), "PBS_MOMPORT=15003",
		"NCPUS="+strconv.Itoa(j.slots[node].chunk.ncpus), "PBS_ENVIRONMENT=PBS_BATCH", "ENVIRONMENT=BATCH", "TMPDIR="+os.TempDir())
}

// run starts a process for a job on a host. Its session is its own; what calls setsid again escapes the host's signals.
func (s *server) run(j *job, host string, argv, env []string, umask string, out *os.File) (*task, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", `umask "$0"; exec "$@"`, umask}, argv...)...)
	cmd.Env, cmd.Dir = env, j.env["HOME"]
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: j.identity()}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &task{host: host, pid: cmd.Process.Pid, wait: make(chan int, 1)}
	j.tasks = append(j.tasks, t)
	go func() {
		err := cmd.Wait()
		code := cmd.ProcessState.ExitCode()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
				code = 256 + int(ws.Signal())
			}
		}
		s.mu.Lock()
		t.done = true
		lost := s.down[host]
		s.mu.Unlock()
		if !lost { // nobody hears of what ended with its host
			t.wait <- code
		}
	}()
	return t, nil
}

// spawn starts a task of a job on one of its hosts, for pbs_tmrsh, which ends with the task's code, and pbsdsh, which
// starts one on every line of the node file and ends with 0 whatever they end with.
func (s *server) spawn(req request) (reply, <-chan int) {
	fail := func(code int, format string, args ...any) (reply, <-chan int) {
		return reply{Stderr: fmt.Appendf(nil, req.Name+": "+format+"\n", args...), Code: code}, nil
	}
	j := s.lookup(req.Env["PBS_JOBID"])
	if j == nil || !j.running() || req.Env["PBS_JOBCOOKIE"] != j.cookie {
		return fail(255, "not executing under PBS")
	}
	lines := s.nodeLines(j)
	if req.Name == "pbsdsh" {
		args := req.Args
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
		all := make(chan int, 1)
		var waits []<-chan int
		for i := range lines {
			if r, w := s.spawnOn(j, lines, i, args); w != nil {
				waits = append(waits, w)
			} else {
				return r, nil
			}
		}
		go func() {
			for _, w := range waits {
				<-w
			}
			all <- 0
		}()
		return reply{}, all
	}
	if len(req.Args) < 2 {
		return fail(255, "usage: pbs_tmrsh [-n][-l username] host [-n][-l username] command")
	}
	host := req.Args[0]
	for i, sl := range lines {
		if sl.host == host {
			return s.spawnOn(j, lines, i, req.Args[1:])
		}
	}
	return fail(255, "host %q is not a node in job <%s>", host, j.id())
}

// tmPath is the PATH of a task.
const tmPath = "/bin:/usr/bin"

func (s *server) spawnOn(j *job, lines []slot, line int, argv []string) (reply, <-chan int) {
	host := lines[line].host
	never := make(chan int)
	if s.down[host] {
		return reply{}, never
	}
	out, err := s.openOutput(j)
	if err != nil {
		return reply{Code: 254}, nil
	}
	defer out.Close()
	node := 0
	for i, h := range j.hosts() {
		if h == host {
			node = i
		}
	}
	env := append(s.taskEnv(j, node, len(j.tasks)+1), "PATH="+tmPath)
	if node > 0 { // unset on the first host's tasks
		env = append(env, "PBS_NODEFILE="+s.nodeFile(j))
	}
	t, err := s.run(j, host, argv, env, j.mask(), out)
	if err != nil {
		return reply{Code: 254}, nil
	}
	code := make(chan int, 1)
	go func() {
		c := <-t.wait
		if c >= 256 {
			c -= 256
		}
		code <- c
	}()
	return reply{}, code
}

// signal sends a signal to every process of every task of a job: to those that are still in a task's session.
func (s *server) signal(j *job, sig syscall.Signal) {
	for _, t := range j.tasks {
		if !t.done && !s.down[t.host] {
			signalSession(t.pid, sig)
		}
	}
}

// endTasks ends a job's tasks on a host.
func (s *server) endTasks(j *job, host string) {
	for _, t := range j.tasks {
		if t.host == host {
			signalSession(t.pid, syscall.SIGKILL)
		}
	}
}

// lose ends everything on a host, what escaped its session too, and tells nobody.
func (s *server) lose(host string) {
	s.down[host] = true
	for _, j := range s.jobs {
		if !j.running() {
			continue
		}
		for _, t := range j.tasks {
			if t.host == host {
				endTree(t.pid)
			}
		}
		if len(j.slots) > 0 && j.slots[0].host == host && j.lostAt.IsZero() {
			j.lostAt = time.Now()
		}
	}
}
