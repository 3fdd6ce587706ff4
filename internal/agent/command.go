package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/gateway/wire"
)

// What a shell says of a command that can't be started.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// command is the rank's command and everything below it.
type command struct {
	cmd    *exec.Cmd
	grace  time.Duration
	output *output
	guard  *guard    // nil: none is there
	cause  string    // what ends it, if not itself
	kill   time.Time // when KILL follows
	done   chan result
}

// result is how the command ended, once nothing of it is left.
type result struct {
	code, signal int
	message      string
}

// startCommand starts the command in its own process group. The error's text is for people; its code is what a shell
// would exit with. task is the mark in env that its guard goes by; "": it gets none.
func startCommand(o wire.StartOrder, env []string, out *output, task string) (*command, *wire.ExitReport) {
	argv := o.Argv
	if len(o.Setup) > 0 {
		argv = withSetup(o.Setup, o.Argv)
	}
	path, report := lookPath(argv[0], env, o.Workdir)
	if report != nil {
		return nil, report
	}
	if info, err := os.Stat(o.Workdir); err != nil || !info.IsDir() {
		return nil, &wire.ExitReport{Code: codeNotExecutable, Message: fmt.Sprintf("the work folder %s is not there or can't be entered on this node", o.Workdir)}
	}
	cmd := &exec.Cmd{Path: path, Args: argv, Env: env, Dir: o.Workdir, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if err := out.attach(cmd); err != nil {
		return nil, &wire.ExitReport{Code: codeNotExecutable, Message: err.Error()}
	}
	err := cmd.Start()
	out.started()
	if err != nil {
		out.finish(0)
		code := codeNotExecutable
		if errors.Is(err, fs.ErrNotExist) {
			code = codeNotFound
		}
		return nil, &wire.ExitReport{Code: code, Message: fmt.Sprintf("starting %s: %v", argv[0], plainExecError(err))}
	}
	c := &command{cmd: cmd, grace: time.Duration(o.GraceMS) * time.Millisecond, output: out, done: make(chan result, 1)}
	if task != "" {
		// Without one the command runs all the same: it guards against the agent's own violent end alone.
		c.guard, _ = startGuard(cmd.Process.Pid, task)
	}
	go c.wait()
	return c, nil
}

// withSetup runs shell lines before the command, in one login shell, so that what they export and the site's own
// functions (module) are there. A line that fails ends the rank.
func withSetup(setup, argv []string) []string {
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	script := "set -e\n" + strings.Join(setup, "\n") + "\nset +e\nexec \"$@\"\n"
	return append([]string{shell, "-l", "-c", script, "openai4s-setup"}, argv...)
}

// lookPath finds the program as a shell in the work folder with the command's own PATH would.
func lookPath(name string, env []string, workdir string) (string, *wire.ExitReport) {
	if strings.ContainsRune(name, '/') {
		if !filepath.IsAbs(name) {
			name = filepath.Join(workdir, name)
		}
		return name, executable(name)
	}
	var denied *wire.ExitReport
	for _, dir := range filepath.SplitList(lookupEnv(env, "PATH")) {
		if dir == "" {
			continue // the current folder is never searched silently
		}
		path := filepath.Join(dir, name)
		report := executable(path)
		if report == nil {
			return path, nil
		}
		if report.Code == codeNotExecutable {
			denied = report
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &wire.ExitReport{Code: codeNotFound, Message: fmt.Sprintf("%s: command not found on this node", name)}
}

func executable(path string) *wire.ExitReport {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return &wire.ExitReport{Code: codeNotFound, Message: fmt.Sprintf("%s: no such file on this node", path)}
	case info.IsDir():
		return &wire.ExitReport{Code: codeNotExecutable, Message: fmt.Sprintf("%s: is a folder", path)}
	case unix.Access(path, unix.X_OK) != nil:
		return &wire.ExitReport{Code: codeNotExecutable, Message: fmt.Sprintf("%s: is not executable; chmod +x it, or name its interpreter in command", path)}
	}
	return nil
}

func plainExecError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func lookupEnv(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// signal sends to the command's process group.
func (c *command) signal(s syscall.Signal) { _ = syscall.Kill(-c.cmd.Process.Pid, s) }

// terminate asks the command to end: TERM to its group now, KILL to everything after grace. The first cause stays.
func (c *command) terminate(cause string, grace time.Duration) {
	if c.cause == "" {
		c.cause = cause
	}
	end := time.Now().Add(grace)
	if c.kill.IsZero() {
		c.kill = end
		c.signal(syscall.SIGCONT) // a stopped command takes no TERM
		c.signal(syscall.SIGTERM)
	} else if end.Before(c.kill) {
		c.kill = end
	}
}

// killAll ends everything below the agent.
func (c *command) killAll() {
	c.signal(syscall.SIGKILL)
	for _, pid := range everyBelow(c.guard.pid()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// leftGrace is what children get that outlive their command.
const leftGrace = 2 * time.Second

// wait takes the command's end, ends what it left behind, and reports once nothing is left and its output is out.
func (c *command) wait() {
	err := c.cmd.Wait()
	e := result{}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		status, _ := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			e.signal, e.code = int(status.Signal()), 128+int(status.Signal())
		} else {
			e.code = status.ExitStatus()
		}
	default:
		e.code, e.message = codeNotExecutable, err.Error()
	}
	endLeft(c.cmd.Process.Pid, c.guard.pid())
	c.guard.release()
	c.output.finish(time.Second)
	c.done <- e
}

// endLeft ends what outlived the command: TERM, two seconds, KILL, until nothing is there.
func endLeft(group, guard int) {
	start := time.Now()
	pause := time.Millisecond
	for told := false; ; {
		reap(guard)
		left := everyBelow(guard)
		if len(left) == 0 {
			return
		}
		switch {
		case !told:
			told = true
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
			_ = syscall.Kill(-group, syscall.SIGTERM)
		case time.Since(start) > leftGrace:
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if time.Since(start) > 2*leftGrace+time.Second {
			return // in uninterruptible sleep: the node's own affair
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}
