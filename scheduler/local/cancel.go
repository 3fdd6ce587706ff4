package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/scheduler"
)

// Cancel tells the job's supervisor to end it.
func (s *System) Cancel(_ context.Context, id scheduler.JobID, who scheduler.Identity) error {
	f := s.path(id)
	if f == "" {
		return fmt.Errorf("cancelling job %s: %w", id, scheduler.ErrNoSuchJob)
	}
	sp, err := f.readSpec()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cancelling job %s: %w", id, scheduler.ErrNoSuchJob)
	case err != nil:
		return fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	}
	if ours, err := f.isOf(who, sp); err != nil {
		return fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	} else if !ours {
		return fmt.Errorf("cancelling job %s, named %q: %w", id, sp.Name, scheduler.ErrNotOurs)
	}
	st, err := f.current(sp)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	case st.over():
		return fmt.Errorf("cancelling job %s, which is %s: %w", id, st.Word, scheduler.ErrNoSuchJob)
	case st.Supervisor == 0:
		return fmt.Errorf("%w: job %s is only being submitted", scheduler.ErrNoAnswer, id)
	}
	return f.terminate(st.Supervisor)
}

// terminate signals a supervisor. Its process id is believed only if the job is still supervised once the process
// is held: a later process of that number would get the signal otherwise.
func (f folder) terminate(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cancelling job %s: %w", f.id(), scheduler.ErrNoSuchJob)
	}
	if err != nil {
		return fmt.Errorf("%w: holding the supervisor of job %s: %w", scheduler.ErrNoAnswer, f.id(), err)
	}
	defer unix.Close(fd)
	alive, err := f.supervised()
	if err != nil {
		return fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	}
	if !alive {
		return fmt.Errorf("cancelling job %s: %w", f.id(), scheduler.ErrNoSuchJob)
	}
	err = unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cancelling job %s: %w", f.id(), scheduler.ErrNoSuchJob)
	}
	if err != nil {
		return fmt.Errorf("%w: signalling the supervisor of job %s: %w", scheduler.ErrNoAnswer, f.id(), err)
	}
	return nil
}
