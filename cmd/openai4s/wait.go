package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/systems"
)

// lookoutEvery is how often it is looked whether the process that serves an embedded gateway is still there.
const lookoutEvery = time.Second

// cancelTakes is how long a second Ctrl-C waits for the first one's cancel to be taken.
const cancelTakes = 5 * time.Second

// errGatewayGone is the cause of a watch that must connect anew.
var errGatewayGone = errors.New("the process that served the gateway went away")

// errLeft is the cause of a watch that Ctrl-C ended.
var errLeft = errors.New("left by Ctrl-C")

type waitCommand struct {
	ID string `arg:"" help:"A workload's id, a unique prefix of one, or the scheduler's job id."`
	gatewayFlags
	Logs  bool `short:"f" help:"Copy the job's output to standard output meanwhile."`
	Quiet bool `short:"q" help:"Tell nothing but errors."`
}

func (waitCommand) Help() string {
	return `Ends with the command's own exit code (128 + signal), 20 for a cancelled workload, 1 where there is no code.
Ctrl-C leaves; the workload goes on.

Example:

    openai4s wait wl_3f2a`
}

func (c *waitCommand) Run(a *app) error {
	if c.Logs && (a.json || c.Quiet) {
		return usage("--logs doesn't go with --json or --quiet: standard output can hold one of them only")
	}
	return a.withWorkload(c.gatewayFlags, c.ID, func(ctx context.Context, conn *connection, system scheduler.System, w api.Workload) error {
		last, err := waiting{app: a, conn: conn, system: system, logs: c.Logs, quiet: c.Quiet || a.json}.run(w)
		if err != nil {
			return err
		}
		if a.json {
			err = a.print(last)
		}
		return errors.Join(endOf(last), err)
	})
}

// withWorkload connects, finds one workload and runs fn. Ctrl-C ends ctx before fn; fn decides for itself.
func (a *app) withWorkload(flags gatewayFlags, id string, fn func(context.Context, *connection, scheduler.System, api.Workload) error) error {
	s, err := a.loadSite()
	if err != nil {
		return err
	}
	system, err := systems.For(s)
	if err != nil {
		return badFile(err)
	}
	early, release := a.interruptible(context.Background())
	defer release()
	conn, err := a.connect(early, s, flags)
	if err != nil {
		return err
	}
	w, err := conn.gateway().Get(early, id)
	release()
	if err != nil {
		return errors.Join(err, conn.close())
	}
	return errors.Join(fn(context.Background(), conn, system, w), conn.close())
}

// waiting follows one workload to its end.
type waiting struct {
	app     *app
	conn    *connection
	system  scheduler.System
	logs    bool // the job's output goes to standard output
	quiet   bool // no view
	cancels bool // the first Ctrl-C cancels the workload, the second leaves
}

// run shows the workload until it is over and returns its last state.
func (o waiting) run(w api.Workload) (api.Workload, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	v := o.view(w)
	go o.onInterrupt(ctx, cancel, w.ID)

	output := startFollowing(o, v, w)
	last, err := o.watch(ctx, w, func(w api.Workload) {
		output.update(w)
		v.update(w)
	})
	output.finish()
	v.close(last, err == nil)
	if errors.Is(context.Cause(ctx), errLeft) && !last.Phase.Terminal() {
		return last, &failure{exit: exitDetached, cause: errLeft,
			message: fmt.Sprintf("left; %s goes on", w.ID),
			hint:    "openai4s wait " + string(w.ID)}
	}
	return last, err
}

// view picks how the way is shown.
func (o waiting) view(w api.Workload) view {
	switch {
	case o.quiet:
		return silent{}
	case o.app.live:
		return newBar(o.app, w)
	}
	return &lines{app: o.app}
}

// onInterrupt gives Ctrl-C its meaning.
func (o waiting) onInterrupt(ctx context.Context, leave context.CancelCauseFunc, id scheduler.WorkloadID) {
	var taken chan struct{} // closed once the gateway has the cancel
	for {
		select {
		case <-o.app.interrupts:
			if !o.cancels || taken != nil {
				if taken != nil { // leaving ends an embedded gateway: what was asked first must stand in its store
					select {
					case <-taken:
					case <-time.After(cancelTakes):
					}
				}
				leave(errLeft)
				return
			}
			taken = make(chan struct{})
			o.app.note("cancelling %s; Ctrl-C once more leaves it", id)
			go func() {
				defer close(taken)
				if _, err := cancelWorkload(ctx, o.app, o.conn.gateway(), o.system, id); err != nil && ctx.Err() == nil {
					o.app.note("cancelling %s: %v", id, err)
				}
			}()
		case <-ctx.Done():
			return
		}
	}
}

// watch calls changed with every state until the workload is over, doing the owner's duties on the way and moving on
// when the process that serves an embedded gateway goes away.
func (o waiting) watch(ctx context.Context, w api.Workload, changed func(api.Workload)) (api.Workload, error) {
	last := w
	changed(w)
	duties := startDuties(ctx, o)
	defer duties.stop()
	for !last.Phase.Terminal() {
		events, cancel := context.WithCancelCause(ctx)
		if o.conn.embedded && o.conn.serving() == nil {
			go lookout(events, o.conn.gateway(), cancel)
		}
		err := o.conn.gateway().Events(events, w.ID, func(now api.Workload) error {
			last = now
			changed(now)
			duties.update(now)
			return nil
		})
		gone := errors.Is(context.Cause(events), errGatewayGone)
		cancel(nil)
		switch {
		case last.Phase.Terminal():
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case o.conn.embedded && (gone || errors.Is(err, api.ErrNobody)):
			if err := o.conn.dial(ctx); err != nil {
				return last, err
			}
		case err != nil:
			return last, fmt.Errorf("following %s: %w", w.ID, err)
		}
	}
	return last, nil
}

// lookout ends a watch once nobody serves the embedded gateway any more.
func lookout(ctx context.Context, gateway *api.Client, gone context.CancelCauseFunc) {
	tick := time.NewTicker(lookoutEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := gateway.Info(ctx); errors.Is(err, api.ErrNobody) {
				gone(errGatewayGone)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
