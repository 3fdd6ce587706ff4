package pbs

import (
	"context"
	"fmt"

	"github.com/openai4s/hpc/scheduler"
)

// Exit codes of qdel.
const (
	codeUnknownJob = 153
	codeNotAllowed = 159
	codeBadState   = 168 // the job is ending already
	codeFinished   = 35
	codeNoMom      = 222 // "Server could not connect to MOM": the job's first node is gone
)

// Cancel reads the job, compares its owner and name, and runs qdel. Where the job's first node doesn't answer, plain
// qdel is refused until the server gives that node up, minutes later; -W force ends the job in the server's books.
func (s *System) Cancel(ctx context.Context, id scheduler.JobID, who scheduler.Identity) error {
	answer, err := s.Observe(ctx, []scheduler.JobID{id})
	if err != nil {
		return fmt.Errorf("reading job %s before its cancel: %w", id, err)
	}
	if err := answer.Unanswered[id]; err != nil {
		return fmt.Errorf("reading job %s before its cancel: %w", id, err)
	}
	job, known := answer.Known[id]
	if !known {
		return fmt.Errorf("cancelling job %s: %w", id, scheduler.ErrNoSuchJob)
	}
	if job.User != who.User || job.Name != who.Name {
		return fmt.Errorf("cancelling job %s: %w: it is %q of user %q, not %q of user %q",
			id, scheduler.ErrNotOurs, oneLine(job.Name), oneLine(job.User), who.Name, who.User)
	}
	if job.Phase.Terminal() {
		return fmt.Errorf("cancelling job %s: %w: it is over", id, scheduler.ErrNoSuchJob)
	}
	res, err := s.qdel(ctx, id.ID)
	if err == nil && res.code == codeNoMom {
		res, err = s.qdel(ctx, "-W", "force", id.ID)
	}
	if err != nil {
		return fmt.Errorf("cancelling job %s: %w", id, err)
	}
	switch res.code {
	case 0, codeBadState:
		return nil
	case codeUnknownJob, codeFinished:
		return fmt.Errorf("cancelling job %s: %w: %s", id, scheduler.ErrNoSuchJob, oneLine(res.said()))
	case codeNotAllowed:
		return fmt.Errorf("cancelling job %s: %w: this user may not cancel it: %s", id, scheduler.ErrNotOurs, oneLine(res.said()))
	}
	return fmt.Errorf("cancelling job %s: %w", id, res.failure())
}

func (s *System) qdel(ctx context.Context, args ...string) (result, error) {
	res, err := s.run.do(ctx, s.limits.cancel, nil, "qdel", args...)
	if err != nil {
		return res, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	}
	if res.cut != nil {
		return res, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, res.cut)
	}
	return res, nil
}
