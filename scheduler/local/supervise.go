package local

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The files that a submitter hands to a supervisor.
const (
	lockFD   = 3
	answerFD = 4
)

// sweepEvery is how often what is left of an ended job is killed again, and sweepFor for how long: a process that
// can't be killed (stuck in the kernel) doesn't keep the job alive for ever.
const (
	sweepEvery = 20 * time.Millisecond
	sweepFor   = 30 * time.Second
)

// Supervise runs the job in dir to its end and returns the supervisor's exit code: 0 if the job's end, whatever it
// was, is written down. TERM or INT cancels the job.
func Supervise(dir string) int {
	f := folder(dir)
	if err := f.supervise(); err != nil {
		fmt.Fprintf(os.Stderr, "supervising job %s: %v\n", f.id(), err)
		return 1
	}
	return 0
}

func (f folder) supervise() error {
	// The parent-death signal of a child comes when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	lock, answer, err := f.inherited()
	if err != nil {
		return err
	}
	defer lock.Close()
	sp, err := f.readSpec()
	if err != nil {
		return err
	}
	switch st, err := f.readState(); {
	case err != nil:
		return err
	case st.Word != pending:
		return fmt.Errorf("the job was run before and is %s", st.Word)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming a child subreaper: %w", err)
	}
	orders := make(chan os.Signal, 4)
	signal.Notify(orders, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(orders)

	st := state{Word: running, Supervisor: os.Getpid(), Started: time.Now()}
	if err := f.writeState(st); err != nil {
		return err
	}
	if answer != nil {
		_, _ = answer.WriteString(taken) // a submitter that went away has its job all the same
		answer.Close()
	}
	script, err := f.startScript(sp.Options)
	if err != nil {
		st.Word, st.Message = failed, printable(err.Error())
	} else {
		f.follow(script, sp.Options, orders, &st)
	}
	st.Ended = time.Now()
	return f.writeState(st)
}

// inherited takes over what the submitter handed on. A supervisor started by hand takes the lock itself and has
// nobody to answer to.
func (f folder) inherited() (lock, answer *os.File, err error) {
	var ours, theirs unix.Stat_t
	if unix.Fstat(lockFD, &ours) == nil && unix.Stat(filepath.Join(string(f), "lock"), &theirs) == nil &&
		ours.Dev == theirs.Dev && ours.Ino == theirs.Ino {
		unix.CloseOnExec(lockFD)
		unix.CloseOnExec(answerFD)
		return os.NewFile(lockFD, "lock"), os.NewFile(answerFD, "answer"), nil
	}
	lock, err = f.lock()
	return lock, nil, err
}

// startScript starts the batch script and returns its process id. The script dies with its supervisor.
func (f folder) startScript(o options) (int, error) {
	if info, err := os.Stat(o.Chdir); err != nil {
		return 0, fmt.Errorf("the job's folder %q can't be entered: %w", o.Chdir, bare(err))
	} else if !info.IsDir() {
		return 0, fmt.Errorf("the job's folder %q is no folder", o.Chdir)
	}
	path := expand(o.Output, f.id(), "")
	output, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return 0, fmt.Errorf("the job's output file %q can't be opened: %w", path, bare(err))
	}
	defer output.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("opening the script's input: %w", err)
	}
	defer null.Close()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", f.script()}, &syscall.ProcAttr{
		Dir:   o.Chdir,
		Env:   append(environment(os.Environ()), "OPENAI4S_JOB_ID="+f.id()),
		Files: []uintptr{null.Fd(), output.Fd(), output.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("starting the job's script in %q: %w", o.Chdir, err)
	}
	return pid, nil
}

// bare is an error without the path that its text would repeat.
func bare(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// follow waits for the script's end and for that of everything it started, and puts the end into st.
func (f folder) follow(script int, o options, orders <-chan os.Signal, st *state) {
	var walltime, kill, sweep, giveUp <-chan time.Time
	if o.Time > 0 {
		walltime = time.After(time.Until(st.Started.Add(o.Time)))
	}
	end := func(word, message string) {
		if st.Word == running && sweep == nil {
			st.Word, st.Message = word, message
			signalTree(unix.SIGTERM)
			kill = time.After(o.KillDelay)
		}
	}
	ended := reap()
	for {
		select {
		case child, more := <-ended:
			if !more {
				return
			}
			if child.pid == script {
				st.conclude(child.status)
				signalTree(unix.SIGKILL)
				ticker := time.NewTicker(sweepEvery)
				defer ticker.Stop()
				walltime, kill, sweep, giveUp = nil, nil, ticker.C, time.After(sweepFor)
			}
		case <-orders:
			end(cancelled, "")
		case <-walltime:
			end(timeout, fmt.Sprintf("the walltime of %s was over", o.Time))
		case <-kill:
			signalTree(unix.SIGKILL)
			kill = time.After(sweepEvery)
		case <-sweep:
			signalTree(unix.SIGKILL)
		case <-giveUp:
			fmt.Fprintf(os.Stderr, "processes %v of job %s can't be killed\n", descendants(os.Getpid()), f.id())
			return
		}
	}
}

// conclude puts the script's end into st; what ended it goes before how it ended.
func (s *state) conclude(status unix.WaitStatus) {
	if status.Signaled() {
		s.Signal = int(status.Signal())
	} else {
		code := status.ExitStatus()
		s.ExitCode = &code
	}
	if s.Word != running {
		return
	}
	switch {
	case s.Signal != 0:
		s.Word, s.Message = failed, fmt.Sprintf("the job's script was ended by signal %d", s.Signal)
	case *s.ExitCode != 0:
		s.Word = failed
	default:
		s.Word = completed
	}
}

// child is one process's end.
type child struct {
	pid    int
	status unix.WaitStatus
}

// reap collects every child's end, adopted ones included, until there is none left.
func reap() <-chan child {
	ended := make(chan child)
	go func() {
		defer close(ended)
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, 0, nil)
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return
			default:
				ended <- child{pid, status}
			}
		}
	}()
	return ended
}
