package pbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/openai4s/hpc/internal/capped"
	"github.com/openai4s/hpc/scheduler"
)

// maxOutput bounds what is kept of a command's standard output: a job's record is about 1.5 kB, with an exported
// environment up to 130 kB, and a question names at most maxIDs jobs.
const maxOutput = 64 << 20

// maxErrors bounds what is kept of a command's standard error.
const maxErrors = 1 << 20

// pipeGrace is how long a command's descriptors are read on after it ended: a wrapper may leave a child behind
// that holds them.
const pipeGrace = 2 * time.Second

// runner starts PBS commands: an argv list, no shell, an environment without a surrounding job.
type runner struct {
	paths map[string]string // a command's name to its absolute path
}

// result of a command that was started.
type result struct {
	command string // as a person would type it, for messages
	stdout  []byte
	stderr  []byte
	code    int   // exit code; -1 where a signal ended the command
	cut     error // it was killed by its limit or by the caller, or printed too much: what was read may be half
}

// do runs name with args. Its error means that the command was never started.
func (r runner) do(ctx context.Context, limit time.Duration, stdin []byte, name string, args ...string) (result, error) {
	path := name
	if p := r.paths[name]; p != "" {
		path = p
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	stdout, stderr := &capped.Buffer{Most: maxOutput}, &capped.Buffer{Most: maxErrors}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	cmd.Env = clean(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeGrace

	res := result{command: strings.Join(append([]string{name}, args...), " ")}
	if err := cmd.Start(); err != nil {
		return res, fmt.Errorf("starting %s: %w", name, err)
	}
	err := cmd.Wait()
	res.stdout, res.stderr, res.code = stdout.Bytes(), stderr.Bytes(), cmd.ProcessState.ExitCode()
	switch {
	case ctx.Err() != nil && !cmd.ProcessState.Exited():
		res.cut = fmt.Errorf("%s was stopped after %s: %w", name, limit, context.Cause(ctx))
	case !cmd.ProcessState.Exited():
		res.cut = fmt.Errorf("%s ended by %v", name, cmd.ProcessState)
	case stdout.Over:
		res.cut = fmt.Errorf("%s printed more than %d bytes", name, maxOutput)
	case err != nil && !isExit(err) && !errors.Is(err, exec.ErrWaitDelay) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		res.cut = fmt.Errorf("reading from %s: %w", name, err)
	}
	return res, nil
}

func isExit(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit)
}

// ask is do for a question, where a command that could not be started or was cut short is no answer.
func (s *System) ask(ctx context.Context, name string, args ...string) (result, error) {
	res, err := s.run.do(ctx, s.limits.ask, nil, name, args...)
	if err != nil {
		return res, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	}
	if res.cut != nil {
		return res, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, res.cut)
	}
	return res, nil
}

// failure words a command's unhappy end: its exit code and what it said.
func (r result) failure() error {
	return fmt.Errorf("%w: %s: exit code %d: %s", scheduler.ErrNoAnswer, neutral(r.command), r.code, r.said())
}

// said is what the command printed on standard error, or else on standard output, fit to be shown.
func (r result) said() string {
	if text := neutral(string(r.stderr)); text != "" {
		return text
	}
	if text := neutral(string(r.stdout)); text != "" {
		return text
	}
	return "nothing was printed"
}
