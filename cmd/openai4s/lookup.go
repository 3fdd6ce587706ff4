package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

const (
	// lookUpFor is how long a job whose submission got no answer is looked for before the user is told.
	lookUpFor = time.Minute
	// reportFor is how long a report to the gateway is tried.
	reportFor = 30 * time.Second
)

// errNotThere says that queue and accounting have no job of this name, so far: a slow submission may still land.
var errNotThere = errors.New("the scheduler has no such job so far")

// identity is whose and which job a workload's allocation is.
func identity(w api.Workload) scheduler.Identity {
	return scheduler.Identity{UID: os.Getuid(), User: w.Owner, Name: w.JobName}
}

// find asks the scheduler once for the job of a workload. errNotThere: it said that there is none.
func (h handover) find(ctx context.Context, w api.Workload) (scheduler.JobID, error) {
	jobs, err := h.system.Find(ctx, identity(w))
	if err != nil {
		return scheduler.JobID{}, err
	}
	if len(jobs) == 0 {
		return scheduler.JobID{}, errNotThere
	}
	if len(jobs) > 1 { // one of them holds the allocation, the others end by themselves; the ranks tell which
		h.app.note("the scheduler has %d jobs named %s; only one of them will run it", len(jobs), w.JobName)
	}
	return jobs[0], nil
}

// lookUp looks for a job whose submission got no answer, and reports it once it is found. It never submits again.
func (h handover) lookUp(ctx context.Context, w api.Workload) (api.Workload, error) {
	job, err := retry(ctx, cmp.Or(h.lookFor, lookUpFor), func() (scheduler.JobID, error) { return h.find(ctx, w) })
	if err != nil {
		return api.Workload{}, unknown(w.ID, err)
	}
	return h.tell(ctx, w.ID, api.Submission{Outcome: scheduler.Existing, Job: job})
}

// settle says what became of a submission that nobody reported: found, the job is told; never handed over, the
// workload is ended. errNotThere: it may have been handed over, and the scheduler has no such job so far.
func (h handover) settle(ctx context.Context, w api.Workload) (api.Workload, error) {
	job, err := h.find(ctx, w)
	switch {
	case err == nil:
		return h.tell(ctx, w.ID, api.Submission{Outcome: scheduler.Existing, Job: job})
	case !errors.Is(err, errNotThere):
		return api.Workload{}, unknown(w.ID, err)
	case neverHandedOver(w):
		return h.tell(ctx, w.ID, api.Submission{Outcome: scheduler.Rejected, Reason: scheduler.BootstrapFailed,
			Text: "the command that submitted it ended before it handed anything to the scheduler; submit it anew"})
	}
	return api.Workload{}, err
}

// resume settles a workload whose submission is unknown; where its job surely isn't there, it is handed over (the same
// allocation, whose first script to run shuts out any other). What is handed over lies in the user's own runtime_dir.
func (h handover) resume(ctx context.Context, w api.Workload, runtimeDir string) (api.Workload, error) {
	after, err := h.settle(ctx, w)
	if !errors.Is(err, errNotThere) {
		return after, err
	}
	if h.record, err = readRecord(runtimeDir, w.ID); err != nil {
		return api.Workload{}, err
	}
	created, err := h.gateway.Allocate(ctx, w.ID)
	if err != nil {
		return api.Workload{}, fmt.Errorf("asking for the credentials again: %w", err)
	}
	return h.submit(ctx, created)
}

// neverHandedOver tells whether the command that made the workload died before it asked the scheduler: what it keeps
// first isn't there, though the folder for it is. A young workload's command may still be at it; one that was held for
// longer and goes on then submits a job whose ranks are refused.
func neverHandedOver(w api.Workload) bool {
	if time.Since(w.CreatedAt) < strayAfter {
		return false
	}
	if _, err := os.Stat(filepath.Dir(w.Run)); err != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(w.Run, recordFile))
	return errors.Is(err, fs.ErrNotExist)
}

func unknown(id scheduler.WorkloadID, err error) error {
	return &failure{exit: exitUnknown, cause: err,
		message: fmt.Sprintf("it isn't known whether the scheduler has a job for %s: %v", id, err),
		hint:    "openai4s submit --resume " + string(id)}
}

// retry calls fn with growing pauses until it succeeds, the time is over, or the answer won't change.
func retry[T any](ctx context.Context, most time.Duration, fn func() (T, error)) (T, error) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = 200 * time.Millisecond
	pauses.MaxInterval = 10 * time.Second
	return backoff.Retry(ctx, func() (T, error) {
		v, err := fn()
		if answer := new(api.Error); errors.As(err, &answer) && answer.Status < 500 {
			return v, backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(most))
}
