package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// allRanks asks for every rank's output.
const allRanks = -1

type logsCommand struct {
	ID string `arg:"" help:"A workload's id, a unique prefix of one, or the scheduler's job id."`
	gatewayFlags
	Follow bool `short:"f" help:"Go on until the workload is over."`
	Rank   *int `placeholder:"R" help:"One rank alone."`
}

func (logsCommand) Help() string {
	return `Reads the job's output file as you; where it can't be reached, the gateway's bounded copy (the last 64 KiB of each
rank). A rank alone comes from its own file where the job file's output has %r in it, else from the gateway's copy.

Example:

    openai4s logs -f wl_3f2a`
}

func (c *logsCommand) Run(a *app) error {
	if c.Follow && a.json {
		return usage("--follow doesn't go with --json: an object has an end")
	}
	return a.withWorkload(c.gatewayFlags, c.ID, func(_ context.Context, conn *connection, system scheduler.System, w api.Workload) error {
		if c.Rank != nil && (*c.Rank < 0 || *c.Rank >= w.Size) {
			return usage("%s has ranks 0 to %d, no rank %d", w.ID, w.Size-1, *c.Rank)
		}
		ctx, release := a.interruptible(context.Background())
		defer release()
		w = tend(ctx, a, conn.gateway(), system, w)
		return c.show(ctx, a, conn, system, w)
	})
}

// printed is the answer of logs with --json.
type printed struct {
	Workload scheduler.WorkloadID `json:"workload"`
	Rank     *int                 `json:"rank,omitempty"`
	Source   string               `json:"source"` // the file, or "gateway"
	Text     string               `json:"text"`
}

func (c *logsCommand) show(ctx context.Context, a *app, conn *connection, system scheduler.System, w api.Workload) error {
	own := c.Rank == nil || perRank(w)
	if own && c.Follow && c.Rank == nil && !w.Phase.Terminal() {
		_, err := waiting{app: a, conn: conn, system: system, logs: true, quiet: true}.run(w)
		return err
	}
	text := new(capture)
	source := "gateway"
	err := fs.ErrNotExist
	if own {
		source, err = c.fromFiles(w, text.or(a))
	}
	if err != nil {
		why := err
		source = "gateway"
		rank := allRanks
		if c.Rank != nil {
			rank = *c.Rank
		}
		if err := conn.gateway().Logs(ctx, w.ID, rank, c.Follow, text.or(a)); err != nil {
			return c.nothing(w, why, err)
		}
	}
	if a.json {
		return a.print(printed{Workload: w.ID, Rank: c.Rank, Source: source, Text: text.String()})
	}
	return nil
}

// fromFiles copies the output file, or the ranks' files one after the other.
func (c *logsCommand) fromFiles(w api.Workload, out *lineWriter) (source string, err error) {
	defer out.flush()
	if c.Rank != nil || !perRank(w) {
		rank := 0
		if c.Rank != nil {
			rank = *c.Rank
		}
		path, known := outputFile(w, rank)
		if !known {
			return "", fs.ErrNotExist
		}
		return path, (&tail{path: path}).copy(out)
	}
	found := false
	for rank := range w.Size {
		path, known := outputFile(w, rank)
		if !known {
			return "", fs.ErrNotExist
		}
		out.prefix = fmt.Sprintf("%d: ", rank)
		switch err := (&tail{path: path}).copy(out); {
		case err == nil:
			found = true
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		out.flush()
	}
	if !found {
		return "", fs.ErrNotExist
	}
	return word(w.Output), nil
}

// nothing tells in words that neither place has the output.
func (c *logsCommand) nothing(w api.Workload, why, err error) error {
	f := &failure{exit: exitFailed, cause: err}
	path, known := outputFile(w, 0)
	switch {
	case !known:
		f.message = fmt.Sprintf("%s has no output yet: it is %s and its file is named after the scheduler's id", w.ID, w.Phase)
	case errors.Is(why, fs.ErrNotExist) && !w.Phase.Terminal():
		f.message = fmt.Sprintf("%s has no output yet: it is %s, and %s isn't there", w.ID, w.Phase, path)
	case errors.Is(why, fs.ErrNotExist):
		f.message = fmt.Sprintf("the output of %s isn't there: %s is missing, and the gateway has no copy", w.ID, path)
	default:
		f.message = fmt.Sprintf("the output of %s can't be read (%v), and the gateway has no copy", w.ID, why)
	}
	if c.Rank != nil && !perRank(w) {
		f.message = fmt.Sprintf("the gateway has no copy of rank %d's output any more", *c.Rank)
		f.hint = `all ranks share one file (openai4s logs ` + string(w.ID) + `); output = "NAME-%r.out" in the job file gives each its own`
	}
	return f
}
