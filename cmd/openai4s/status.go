package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/systems"
)

type statusCommand struct {
	ID string `arg:"" optional:"" help:"A workload's id, a unique prefix of one, or the scheduler's job id."`
	gatewayFlags
}

func (statusCommand) Help() string {
	return `Without an id: how the gateway is, and which workloads of yours are live.

Example:

    openai4s status wl_3f2a`
}

func (c *statusCommand) Run(a *app) error {
	if c.ID == "" {
		return c.overview(a)
	}
	return a.withWorkload(c.gatewayFlags, c.ID, func(_ context.Context, conn *connection, system scheduler.System, w api.Workload) error {
		ctx, release := a.interruptible(context.Background())
		defer release()
		w = tend(ctx, a, conn.gateway(), system, w)
		if a.json {
			return a.print(w)
		}
		return a.showWorkload(w)
	})
}

// overview is the answer of status without an id.
type overview struct {
	Gateway   api.Info       `json:"gateway"`
	Workloads []api.Workload `json:"workloads"`
}

func (c *statusCommand) overview(a *app) error {
	return a.withList(c.gatewayFlags, api.Which{}, func(conn *connection, all api.List) error {
		live := []api.Workload{}
		for _, w := range all.Workloads {
			if !w.Phase.Terminal() {
				live = append(live, w)
			}
		}
		if a.json {
			return a.print(overview{conn.info, live})
		}
		if err := a.showGateway(conn.info); err != nil {
			return err
		}
		return a.showList(live)
	})
}

// withList connects, asks for the workloads, does the owner's duties for them and runs fn.
func (a *app) withList(flags gatewayFlags, which api.Which, fn func(*connection, api.List) error) error {
	s, err := a.loadSite()
	if err != nil {
		return err
	}
	system, err := systems.For(s)
	if err != nil {
		return badFile(err)
	}
	ctx, release := a.interruptible(context.Background())
	defer release()
	conn, err := a.connect(ctx, s, flags)
	if err != nil {
		return err
	}
	found, err := conn.gateway().List(ctx, which)
	if err != nil {
		return errors.Join(fmt.Errorf("asking for the workloads: %w", err), conn.close())
	}
	tendAll(ctx, a, conn.gateway(), system, found.Workloads)
	pruneRuns(a, s.RuntimeDir, found.Workloads, time.Now())
	return errors.Join(fn(conn, found), conn.close())
}

func (a *app) showGateway(i api.Info) error {
	kind := "daemon"
	if i.Embedded {
		kind = "embedded"
	}
	text := fmt.Sprintf("gateway %s (%s), process %d, %s\n", word(i.Version), kind, i.PID, count(i.Live, "live workload"))
	if !i.Admitting {
		text += "  admits no rank: " + word(i.Why) + "\n"
	}
	if i.Scheduler != "" && i.Scheduler != "ok" {
		text += "  the scheduler: " + word(i.Scheduler) + "\n"
	}
	_, err := fmt.Fprint(a.out, text)
	return err
}

// showWorkload prints what is known of one workload.
func (a *app) showWorkload(w api.Workload) error {
	head := endText(w)
	if !w.Phase.Terminal() {
		head = string(w.ID) + " " + stepText(w)
	}
	if _, err := fmt.Fprintln(a.out, head); err != nil {
		return err
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(key, value string) {
		if value != "" {
			fmt.Fprintf(t, "  %s\t%s\n", key, word(value))
		}
	}
	row("name", w.Name)
	row("owner", w.Owner)
	row("profile", w.Profile)
	row("size", sizeText(w))
	row("ranks", w.Ranks.Text)
	if w.Job.ID != "" {
		row("job", fmt.Sprintf("%s (%s)", jobID(w), w.Job.System))
	}
	row("scheduler", w.Scheduler)
	if w.Epoch > 0 {
		row("epoch", fmt.Sprint(w.Epoch))
	}
	if path, known := outputFile(w, 0); known && !perRank(w) {
		row("output", path)
	} else {
		row("output", w.Output)
	}
	row("submitted", stamp(w.SubmittedAt))
	row("started", stamp(w.StartedAt))
	row("ended", stamp(w.EndedAt))
	row("lease ends", stamp(w.Deadline))
	if w.Result != nil {
		row("exit code", fmt.Sprint(w.Result.ExitCode))
	}
	row("history", strings.Join(w.History, "; "))
	return t.Flush()
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}
