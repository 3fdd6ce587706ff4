package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/openai4s/hpc/internal/capped"
)

const (
	maxData  = 64 << 20 // bytes of a command's standard output; a queue of 100,000 jobs takes some 30 MiB
	maxWords = 64 << 10 // bytes kept of its standard error, the last ones: the verdict comes at the end
)

var (
	errTimeout = errors.New("the command took too long and was ended")
	errTooMuch = fmt.Errorf("the command printed more than %d MiB", maxData>>20)
)

// runner runs the scheduler's commands: an argv list, no shell, a clean environment, both streams apart.
type runner struct {
	commands map[string]string // name to absolute path, where PATH won't do
}

// result is what a command left. code is -1 if it was ended by a signal, ours included.
type result struct {
	code   int
	stdout []byte
	stderr []byte
}

// words are what the command said to people, ready to be shown.
func (r result) words() string {
	if text := shown(r.stderr); text != "" {
		return text
	}
	return shown(r.stdout)
}

// exitError is a command that ended with another code than 0.
type exitError struct {
	command string
	result
}

func (e *exitError) Error() string {
	text := e.words()
	if text == "" {
		text = "no message"
	}
	if e.code < 0 {
		return fmt.Sprintf("%s was killed: %s", e.command, text)
	}
	return fmt.Sprintf("%s exited with %d: %s", e.command, e.code, text)
}

// do runs name to its end or to the limit and returns what it left. An error means that there is no exit code: it
// was not started (errors.Is exec.ErrNotFound, fs.ErrPermission …), took too long, or printed too much.
// The whole process group is ended at the limit or when ctx is done.
func (r runner) do(ctx context.Context, limit time.Duration, stdin []byte, name string, args ...string) (result, error) {
	path, err := r.path(name)
	if err != nil {
		return result{}, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer stop()
	out := capped.Buffer{Most: maxData}
	var words tail
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environment(os.Environ())
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &out, &words
	// A group of its own: a terminal's Ctrl-C must not cut a submission in two, and a wrapper's children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err = cmd.Run()
	res := result{code: -1, stdout: out.Bytes(), stderr: words.bytes()}
	if cmd.ProcessState == nil {
		return res, fmt.Errorf("starting %s: %w", name, err)
	}
	res.code = cmd.ProcessState.ExitCode()
	if cause := context.Cause(ctx); cause != nil && res.code < 0 {
		return res, fmt.Errorf("running %s: %w", name, cause)
	}
	if out.Over {
		return res, fmt.Errorf("running %s: %w", name, errTooMuch)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && !errors.Is(err, syscall.EPIPE) {
		return res, fmt.Errorf("running %s: %w", name, err)
	}
	return res, nil
}

// ask runs a query and returns its standard output; an exit code other than 0 is an *exitError.
func (r runner) ask(ctx context.Context, limit time.Duration, name string, args ...string) ([]byte, error) {
	res, err := r.do(ctx, limit, nil, name, args...)
	if err != nil {
		return nil, err
	}
	if res.code != 0 {
		return nil, &exitError{name, res}
	}
	return res.stdout, nil
}

func (r runner) path(name string) (string, error) {
	if p := r.commands[name]; p != "" {
		if !filepath.IsAbs(p) {
			return "", fmt.Errorf("command %s: %q is not an absolute path", name, p)
		}
		return p, nil
	}
	p, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("looking for %s (set it under [site] commands if it is not on PATH): %w", name, err)
	}
	return filepath.Abs(p)
}

// kept are variables of the families below that a client needs to find its cluster and to prove who it is.
// SLURM_CLUSTERS is not among them: it would send every later command to another cluster than the job's.
var kept = map[string]bool{"SLURM_CONF": true, "SLURM_CONF_SERVER": true, "SLURM_JWT": true, "SLURM_SACK_KEY": true}

// families of variables that a surrounding allocation, or a user's shell, puts in and that would change what our
// commands do or print.
var families = []string{
	"SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_", "SACCTMGR_",
	"PMI_", "PMIX_", "PMI2_", "PBS_",
}

// environment is env without what a surrounding allocation or a locale would change.
func environment(env []string) []string {
	clean := make([]string, 0, len(env)+2)
next:
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if !kept[name] {
			for _, f := range families {
				if strings.HasPrefix(name, f) {
					continue next
				}
			}
		}
		if name == "TZ" || name == "LANGUAGE" || strings.HasPrefix(name, "LC_") {
			continue
		}
		clean = append(clean, v)
	}
	return append(clean, "LC_ALL=C", "TZ=UTC")
}

// tail keeps the last maxWords bytes.
type tail struct{ buf []byte }

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*maxWords {
		t.buf = append(t.buf[:0], t.bytes()...)
	}
	return len(p), nil
}

func (t *tail) bytes() []byte { return t.buf[max(0, len(t.buf)-maxWords):] }
