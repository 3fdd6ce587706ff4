package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// Whole lines only: a number in a site's banner is no job.
var idLines = []*regexp.Regexp{
	regexp.MustCompile(`^(\d{1,10})(?:;([A-Za-z0-9][A-Za-z0-9._-]{0,63}))?$`),
	regexp.MustCompile(`^Submitted batch job (\d{1,10})(?: on cluster ([A-Za-z0-9][A-Za-z0-9._-]{0,63}))?$`),
}

var errNoID = errors.New("no line of it is a job id")

// Submit runs sbatch with the script on its standard input. It waits for a slow sbatch up to five minutes, ctx or not:
// a submission that was begun is never cut short. Its answer is Created only where exactly one line is a job id and
// the exit code is 0; Rejected only for what is known to be a refusal; Unknown else.
func (s *System) Submit(ctx context.Context, sub scheduler.Submission) (scheduler.Receipt, error) {
	if _, err := s.run.path("sbatch"); err != nil {
		return scheduler.Receipt{}, err
	}
	if err := s.pace.enter(ctx); err != nil {
		return scheduler.Receipt{}, fmt.Errorf("waiting for another submission to end: %w", err)
	}
	busy := false
	defer func() { s.pace.leave(busy) }()

	args := sub.Args
	if !slices.Contains(args, "--parsable") {
		args = append([]string{"--parsable"}, args...)
	}
	begun := time.Now()
	res, err := s.run.do(context.WithoutCancel(ctx), s.limit.submit, sub.Script, "sbatch", args...)
	busy = time.Since(begun) > slow
	if err != nil && res.code < 0 && !errors.Is(err, errTimeout) {
		return scheduler.Receipt{}, err // it never ran
	}
	if err != nil {
		return scheduler.Receipt{
			Outcome: scheduler.Unknown,
			Reason:  scheduler.BackendSubmissionUnknown,
			Text:    strings.TrimSpace(err.Error() + "\n" + res.words()),
			Hint:    lookFirst,
		}, nil
	}
	receipt, overloaded := judge(res)
	busy = busy || overloaded
	return receipt, nil
}

const lookFirst = "the job may be in the queue: it is looked up by its name before anything is submitted again"

// judge tells the outcome of an sbatch that ended by itself, and whether it showed an overloaded controller.
func judge(res result) (r scheduler.Receipt, overloaded bool) {
	overloaded = bytes.Contains(res.stderr, []byte("temporarily unable to accept job"))
	if res.code == 0 {
		job, err := jobID(res.stdout)
		if err == nil {
			return scheduler.Receipt{Outcome: scheduler.Created, Job: job, Text: shown(res.stderr)}, overloaded
		}
		text := "sbatch ended well, but " + err.Error()
		if out := shown(append(slices.Clone(res.stdout), res.stderr...)); out != "" {
			text += ": " + out
		}
		return scheduler.Receipt{Outcome: scheduler.Unknown, Reason: scheduler.BackendSubmissionUnknown, Text: text, Hint: lookFirst}, overloaded
	}
	text := (&exitError{"sbatch", res}).Error()
	if _, err := jobID(res.stdout); err == nil {
		// A wrapper that failed after the real sbatch had succeeded.
		return scheduler.Receipt{Outcome: scheduler.Unknown, Reason: scheduler.BackendSubmissionUnknown, Text: text, Hint: lookFirst}, overloaded
	}
	v := verdictOf(res)
	r = scheduler.Receipt{Outcome: v.outcome, Reason: v.reason, Text: text, Hint: v.hint, Later: v.later}
	return r, overloaded || v.busy
}

// jobID finds the one line that is a job id.
func jobID(out []byte) (scheduler.JobID, error) {
	var found []scheduler.JobID
	for line := range bytes.Lines(out) {
		for _, re := range idLines {
			if m := re.FindSubmatch(bytes.TrimRight(line, "\r\n")); m != nil {
				found = append(found, scheduler.JobID{ID: string(m[1]), Cluster: string(m[2])})
			}
		}
	}
	switch len(found) {
	case 0:
		return scheduler.JobID{}, errNoID
	case 1:
		return found[0], nil
	}
	return scheduler.JobID{}, fmt.Errorf("%d lines of it are job ids", len(found))
}
