package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// tendAll does the duties of many workloads once: one question to the scheduler about all their jobs, and none any
// more once it gave no answer.
func tendAll(ctx context.Context, a *app, gateway *api.Client, system scheduler.System, all []api.Workload) {
	r := &round{System: system}
	if err := r.ask(ctx, all); err != nil && ctx.Err() == nil {
		a.note("asking the scheduler about %s: %v", count(len(r.asked), "job"), err)
	}
	left := 0
	for i, w := range all {
		after, err := duty{a, gateway, r}.perform(ctx, w)
		all[i] = after
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, errNotAsked):
			left++
		default:
			a.note("%s: %v", w.ID, err)
		}
	}
	if left > 0 {
		a.note("the scheduler was not asked again; what %s for is left to the next command", waitFor(left))
	}
}

func waitFor(n int) string {
	if n == 1 {
		return "another workload waits"
	}
	return count(n, "other workload") + " wait"
}

// errNotAsked is a scheduler that gave no answer a moment ago: it says nothing about a job.
var errNotAsked = fmt.Errorf("%w a moment ago", scheduler.ErrNoAnswer)

// round is the scheduler as one command asks it.
type round struct {
	scheduler.System
	asked  map[scheduler.JobID]bool
	answer scheduler.Answer
	silent bool
}

// ask puts the one question about every job that the gateway wants to hear of.
func (r *round) ask(ctx context.Context, all []api.Workload) (err error) {
	r.asked = map[scheduler.JobID]bool{}
	var ids []scheduler.JobID
	for _, w := range all {
		if observes(w) {
			ids = append(ids, jobID(w))
			r.asked[jobID(w)] = true
		}
	}
	if len(ids) > 0 {
		r.answer, err = r.System.Observe(ctx, ids)
	}
	r.silent = err != nil
	return err
}

// Observe answers from the one question.
func (r *round) Observe(ctx context.Context, ids []scheduler.JobID) (scheduler.Answer, error) {
	if r.silent {
		return scheduler.Answer{}, errNotAsked
	}
	for _, id := range ids {
		if !r.asked[id] {
			answer, err := r.System.Observe(ctx, ids)
			return answer, r.heard(err)
		}
	}
	return r.answer, nil
}

// Cancel cancels, unless nobody answers.
func (r *round) Cancel(ctx context.Context, job scheduler.JobID, who scheduler.Identity) error {
	if r.silent {
		return errNotAsked
	}
	return r.heard(r.System.Cancel(ctx, job, who))
}

// Find looks a job up, unless nobody answers.
func (r *round) Find(ctx context.Context, who scheduler.Identity) ([]scheduler.JobID, error) {
	if r.silent {
		return nil, errNotAsked
	}
	found, err := r.System.Find(ctx, who)
	return found, r.heard(err)
}

func (r *round) heard(err error) error {
	r.silent = r.silent || errors.Is(err, scheduler.ErrNoAnswer)
	return err
}
