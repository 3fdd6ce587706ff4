package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/openai4s/hpc/scheduler"
)

// Find looks a job up by name and by its folder's owner.
func (s *System) Find(ctx context.Context, who scheduler.Identity) ([]scheduler.JobID, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	}
	ids, err := s.ids()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	}
	var found []scheduler.JobID
	for _, id := range ids {
		f := folder(filepath.Join(s.dir, strconv.FormatInt(id, 10)))
		sp, err := f.readSpec()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
		}
		if ours, err := f.isOf(who, sp); err != nil {
			return nil, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
		} else if ours {
			found = append(found, scheduler.JobID{ID: f.id()})
		}
	}
	return found, nil
}

// isOf tells whether a job is the one meant. The folder's owner counts, not what is written in it.
func (f folder) isOf(who scheduler.Identity, sp spec) (bool, error) {
	info, err := os.Stat(string(f))
	if err != nil {
		return false, fmt.Errorf("reading the owner of job %s: %w", f.id(), err)
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == who.UID && sp.Name == who.Name, nil
}

// Observe reads the jobs' folders.
func (s *System) Observe(ctx context.Context, ids []scheduler.JobID) (scheduler.Answer, error) {
	if err := ctx.Err(); err != nil {
		return scheduler.Answer{}, fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
	}
	a := scheduler.Answer{Known: map[scheduler.JobID]scheduler.Observation{}, Unanswered: map[scheduler.JobID]error{}}
	for _, id := range ids {
		f := s.path(id)
		if f == "" {
			continue
		}
		o, err := f.observe()
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			a.Unanswered[id] = fmt.Errorf("%w: %w", scheduler.ErrNoAnswer, err)
		default:
			a.Known[id] = o
		}
	}
	return a, nil
}

func (f folder) observe() (scheduler.Observation, error) {
	sp, err := f.readSpec()
	if err != nil {
		return scheduler.Observation{}, err
	}
	st, err := f.current(sp)
	if err != nil {
		return scheduler.Observation{}, err
	}
	o := scheduler.Observation{
		Verbatim:   st.Word,
		Message:    st.Message,
		Name:       sp.Name,
		User:       sp.User,
		SubmitTime: sp.Submitted,
		StartTime:  st.Started,
		EndTime:    st.Ended,
		ExitCode:   st.ExitCode,
		ExitSignal: st.Signal,
	}
	for n := range sp.Options.Nodes {
		o.Hosts = append(o.Hosts, NodeName(n))
	}
	switch st.Word {
	case pending:
		o.Phase = scheduler.Pending
	case running:
		o.Phase = scheduler.Granted
	case completed:
		o.Phase = scheduler.Completed
	case failed:
		o.Phase, o.Reason = scheduler.Failed, scheduler.CommandFailed
		if st.ExitCode == nil && st.Signal == 0 {
			o.Reason = scheduler.BootstrapFailed // the script never ran
		}
	case timeout:
		o.Phase, o.Reason = scheduler.Failed, scheduler.TimeLimitExceeded
	case cancelled:
		o.Phase, o.Reason = scheduler.Cancelled, scheduler.UserCancelled
	case nodeFail:
		o.Phase, o.Reason = scheduler.Failed, scheduler.NodeFailed
	}
	return o, nil
}

// current is a job's state, checked against its lock where it is not final.
func (f folder) current(sp spec) (state, error) {
	st, err := f.readState()
	if err != nil || st.over() {
		return st, err
	}
	if host, _ := os.Hostname(); sp.Host != host {
		return state{}, fmt.Errorf("job %s runs on %s and can't be seen from %s", f.id(), sp.Host, host)
	}
	alive, err := f.supervised()
	if err != nil || alive {
		return st, err
	}
	if st, err = f.readState(); err != nil || st.over() { // it ended between the two looks
		return st, err
	}
	st.Word = nodeFail
	st.Message = "the job's supervisor is gone without a word: it was killed, or the machine was restarted"
	st.Ended, _ = f.ended()
	return st, nil
}

// NodeName is the name of a pretended node, counted from 0: "node1" is the first.
func NodeName(n int) string { return "node" + strconv.Itoa(n+1) }
