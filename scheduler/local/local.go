// Package local is the scheduler that needs none: a job is a supervised process tree on this machine that
// outlives the command that submitted it, ranks are processes, nodes are numbered.
//
// A job is a folder <dir>/<id>/, made by mkdir so that no two have one id, 0700:
//
//	spec.json       what was submitted; a folder without it is no job
//	script          the batch script
//	lock            held (flock) from before spec.json is there until the supervisor is gone
//	state.json      the supervisor's word, replaced by rename; none yet: the job is pending
//	supervisor.log  what the supervisor itself had to say
//
// The lock is taken by the submitter and handed to the supervisor as an open file, so there is no moment in which
// a live job looks like one whose supervisor died: an unlocked job that has no end state is a failed node.
//
// Submission.Args are described at options. Nothing of the submitting shell reaches a job but what environment
// lets through.
package local

import (
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

	"github.com/openai4s/hpc/scheduler"
)

// answerTimeout bounds the wait for the supervisor's word that it took a job.
const answerTimeout = 10 * time.Second

// taken is what a supervisor says once it answers for its job.
const taken = "taken\n"

// maxText bounds what is quoted of a supervisor's log, in bytes.
const maxText = 2048

// System keeps each job in a folder of its own below dir.
type System struct {
	dir       string
	supervise []string
}

// New returns the local scheduler of one user. dir is absolute; supervise is the command that runs a job's
// supervisor (the CLI's hidden command; the job's folder is appended).
func New(dir string, supervise []string) *System { return &System{dir: dir, supervise: supervise} }

// Submit starts the job's supervisor in a session of its own and returns once it took the job.
func (s *System) Submit(ctx context.Context, sub scheduler.Submission) (scheduler.Receipt, error) {
	opts, err := parseOptions(sub.Args)
	if err != nil {
		return rejected(err.Error()), nil
	}
	if len(s.supervise) == 0 {
		return scheduler.Receipt{}, errors.New("the local scheduler has no supervisor command")
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return scheduler.Receipt{}, fmt.Errorf("making the local scheduler's folder: %w", err)
	}
	s.prune(time.Now())
	f, err := s.create()
	if err != nil {
		return scheduler.Receipt{}, err
	}
	receipt, err := s.start(ctx, f, sub, opts)
	if err != nil || receipt.Outcome == scheduler.Rejected {
		_ = os.RemoveAll(string(f)) // nothing of it ever ran
	}
	return receipt, err
}

// start fills the folder and hands it to a supervisor.
func (s *System) start(ctx context.Context, f folder, sub scheduler.Submission, opts options) (scheduler.Receipt, error) {
	lock, err := f.lock()
	if err != nil {
		return scheduler.Receipt{}, err
	}
	defer lock.Close()
	if err := os.WriteFile(f.script(), sub.Script, 0o600); err != nil {
		return scheduler.Receipt{}, fmt.Errorf("keeping the job's script: %w", err)
	}
	logFile, err := os.OpenFile(f.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return scheduler.Receipt{}, fmt.Errorf("opening the supervisor's log: %w", err)
	}
	defer logFile.Close()
	answer, theirs, err := os.Pipe()
	if err != nil {
		return scheduler.Receipt{}, fmt.Errorf("making the supervisor's pipe: %w", err)
	}
	defer answer.Close()
	defer theirs.Close()
	if err := f.writeSpec(newSpec(f, sub.Name, opts)); err != nil {
		return scheduler.Receipt{}, err
	}

	cmd := exec.Command(s.supervise[0], append(append([]string{}, s.supervise[1:]...), string(f))...)
	cmd.Dir = "/"
	cmd.Env = environment(os.Environ())
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{lock, theirs} // 3 and 4: lockFD, answerFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return scheduler.Receipt{}, fmt.Errorf("starting the job's supervisor: %w", err)
	}
	go func() { _ = cmd.Wait() }() // reaps it, if this process lives that long
	theirs.Close()
	lock.Close()
	return await(ctx, f, answer), nil
}

// await reads the supervisor's answer.
func await(ctx context.Context, f folder, answer *os.File) scheduler.Receipt {
	deadline := time.Now().Add(answerTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = answer.SetReadDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = answer.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	said, err := io.ReadAll(io.LimitReader(answer, int64(len(taken))))
	switch {
	case string(said) == taken:
		return scheduler.Receipt{Outcome: scheduler.Created, Job: scheduler.JobID{ID: f.id()}}
	case err == nil: // it ended without having taken the job
		return rejected("the job's supervisor ended at once: " + f.logTail())
	}
	return scheduler.Receipt{
		Outcome: scheduler.Unknown,
		Reason:  scheduler.BackendSubmissionUnknown,
		Text:    fmt.Sprintf("the supervisor of job %s did not answer: %v", f.id(), err),
	}
}

func rejected(text string) scheduler.Receipt {
	return scheduler.Receipt{Outcome: scheduler.Rejected, Reason: scheduler.BackendRejected, Text: printable(text)}
}

// printable caps a text and neutralises its control characters.
func printable(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' {
			return ' '
		}
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, "?")))
}

// path returns the folder that an id names, "" for what is no id of ours.
func (s *System) path(id scheduler.JobID) folder {
	if id.Cluster != "" || number(id.ID) == 0 {
		return ""
	}
	return folder(filepath.Join(s.dir, id.ID))
}
