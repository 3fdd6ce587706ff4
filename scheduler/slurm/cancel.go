package slurm

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/openai4s/hpc/scheduler"
)

// Codes of scancel: the low byte of Slurm's error number.
const (
	codeDenied   = 2002 & 0xff // ESLURM_ACCESS_DENIED
	codeInvalid  = 2017 & 0xff // ESLURM_INVALID_JOB_ID
	codeFinished = 2021 & 0xff // ESLURM_ALREADY_DONE
)

// Cancel reads the job's owner and name first, and ends it only if both are those meant. scancel itself says nothing of
// a job that isn't there, and ends with 0.
func (s *System) Cancel(ctx context.Context, id scheduler.JobID, who scheduler.Identity) error {
	answer, err := s.look(ctx, id)
	if err != nil {
		return err
	}
	if answer == nil {
		return fmt.Errorf("cancelling %s: %w", word(id.String()), scheduler.ErrNoSuchJob)
	}
	if !answer.is(who) {
		return fmt.Errorf("cancelling %s: it is %q of %s: %w", id, word(answer.name), word(answer.user), scheduler.ErrNotOurs)
	}
	if lookUp(answer.state).phase.Terminal() {
		return fmt.Errorf("cancelling %s: it is over (%s): %w", id, word(answer.state), scheduler.ErrNoSuchJob)
	}
	res, err := s.run.do(ctx, s.limit.cancel, nil, "scancel", onCluster([]string{id.ID}, id.Cluster)...)
	if err != nil {
		return noAnswer("running scancel", err)
	}
	switch res.code {
	case 0:
		return nil
	case codeDenied:
		return fmt.Errorf("cancelling %s: %w: %w", id, fs.ErrPermission, &exitError{"scancel", res})
	case codeInvalid, codeFinished:
		return fmt.Errorf("cancelling %s: %w", id, scheduler.ErrNoSuchJob)
	}
	return noAnswer("cancelling "+id.String(), &exitError{"scancel", res})
}

// look reads one job's record in the queue, then in accounting; nil if neither has it.
func (s *System) look(ctx context.Context, id scheduler.JobID) (*record, error) {
	if !wellFormed(id) {
		return nil, nil
	}
	found, err := s.queueByID(ctx, id.Cluster, []string{id.ID})
	if err != nil {
		return nil, noAnswer("asking squeue", err)
	}
	if r, ok := byID(found)[id.ID]; ok {
		return &r, nil
	}
	mode, err := s.accountingOf(ctx)
	if err != nil {
		return nil, noAnswer("asking how finished jobs are kept", err)
	}
	if !mode.on {
		return nil, nil
	}
	found, err = s.account(ctx, mode, id.Cluster, "--jobs="+id.ID)
	if err != nil {
		return nil, noAnswer("asking sacct", err)
	}
	if r, ok := byID(found)[id.ID]; ok {
		return &r, nil
	}
	return nil, nil
}

// is tells whether the record is of the job meant: its name and its owner, by number where Slurm tells it.
func (r record) is(who scheduler.Identity) bool {
	if r.name != who.Name || who.Name == "" {
		return false
	}
	if isNumber(r.uid) {
		return r.uid == strconv.Itoa(who.UID)
	}
	return who.User != "" && r.user == who.User
}
