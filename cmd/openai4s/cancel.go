package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

type cancelCommand struct {
	ID string `arg:"" help:"A workload's id, a unique prefix of one, or the scheduler's job id."`
	gatewayFlags
}

func (cancelCommand) Help() string {
	return `Returns once no further rank is let in and the ranks were told to stop; openai4s wait sees the end of it.

Example:

    openai4s cancel wl_3f2a`
}

func (c *cancelCommand) Run(a *app) error {
	return a.withWorkload(c.gatewayFlags, c.ID, func(_ context.Context, conn *connection, system scheduler.System, w api.Workload) error {
		ctx, release := a.interruptible(context.Background())
		defer release()
		after, err := cancelWorkload(ctx, a, conn.gateway(), system, w.ID)
		if err != nil {
			return err
		}
		if own := conn.serving(); own != nil && !after.Phase.Terminal() {
			// The gateway lives in this process alone: it must see the end, or nobody stops the ranks.
			if after, err = (waiting{app: a, conn: conn, system: system, quiet: a.json}).run(after); err != nil {
				return err
			}
		}
		if a.json {
			return a.print(after)
		}
		_, err = fmt.Fprintf(a.out, "%s %s\n", after.ID, cancelText(w, after))
		return err
	})
}

// cancelText says what the cancel did.
func cancelText(before, after api.Workload) string {
	switch {
	case before.Phase.Terminal():
		return "was over already: " + string(after.Phase)
	case after.Phase.Terminal():
		return string(after.Phase)
	}
	return "is being cancelled"
}

// cancelWorkload fences the workload and, where the gateway can't, ends the scheduler's job as its owner.
func cancelWorkload(ctx context.Context, a *app, gateway *api.Client, system scheduler.System, id scheduler.WorkloadID) (api.Workload, error) {
	answer, err := gateway.Cancel(ctx, id)
	if err != nil {
		return api.Workload{}, fmt.Errorf("cancelling: %w", err)
	}
	w := answer.Workload
	if answer.ByCaller && w.Job.ID != "" {
		who := identity(w)
		who.UID = w.UID // root cancels others' jobs too
		err := system.Cancel(ctx, jobID(w), who)
		if err != nil && !errors.Is(err, scheduler.ErrNoSuchJob) {
			return w, fmt.Errorf("cancelling job %s: %w", jobID(w), err)
		}
	}
	return tend(ctx, a, gateway, system, w), nil
}
