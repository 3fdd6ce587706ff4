package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/systems"
	"github.com/openai4s/hpc/site"
)

type submitCommand struct {
	Job string `arg:"" optional:"" name:"job.toml" help:"The job file."`
	jobFlags
	gatewayFlags
	Wait           bool   `help:"Wait for the end and leave with the command's exit code. An embedded gateway always waits."`
	Logs           *bool  `short:"f" negatable:"" help:"While waiting, copy the job's output to standard output. Default with an embedded gateway."`
	Quiet          bool   `short:"q" help:"Tell nothing but errors, and copy no output."`
	DryRun         bool   `help:"As render: show what would be submitted."`
	IdempotencyKey string `placeholder:"K" help:"A word of yours: a second submit with the same one shows the first's workload."`
	Recover        int    `placeholder:"N" help:"Ask for a new allocation, at most N times, when one is lost (a node fails, it is preempted). Each is a new epoch."`
	Resume         string `placeholder:"ID" help:"Settle a workload whose submission is unknown: look it up, and hand it over if it isn't there."`
}

func (submitCommand) Help() string {
	return `Flags win over the job file, the job file over the profile's defaults. Without a site file the job runs on this
machine, and this command stays until it is over.

Example:

    openai4s submit --nodes 4 --wait examples/hello/job.toml`
}

// Run is the submit path: load, resolve, create, write bundles, render, hand over, report.
func (c *submitCommand) Run(a *app) error {
	if err := c.check(a); err != nil {
		return err
	}
	s, err := a.loadSite()
	if err != nil {
		return err
	}
	if c.Resume != "" {
		return c.resume(a, s)
	}
	if c.DryRun {
		return a.render(s, c.jobFlags, c.Job)
	}
	early, release := a.interruptible(context.Background()) // until the gateway has answered, Ctrl-C leaves at once
	defer release()
	j, request, err := c.load(s, c.Job)
	if err != nil {
		return err
	}
	if text := lateRanks(request); text != "" {
		a.note("%s", text)
	}
	create, err := c.create(j, request)
	if err != nil {
		return err
	}
	create.Inputs, err = a.pin(early, j)
	if err != nil {
		return err
	}
	// Before any workload of it is made: where runtime_dir isn't there later, its file system isn't, and nothing is known.
	if err := os.MkdirAll(request.RuntimeDir, 0o700); err != nil {
		return runtimeDirError(fmt.Errorf("making runtime_dir: %w", err))
	}
	agent, err := placeAgent(s, request.RuntimeDir)
	if err != nil {
		return err
	}
	system, err := systems.For(s)
	if err != nil {
		return badFile(err)
	}
	conn, err := a.connect(early, s, c.gatewayFlags)
	if err != nil {
		return err
	}
	created, err := c.make(early, conn, create)
	release()
	if err != nil {
		return errors.Join(err, conn.close())
	}
	if created.Existing {
		return c.follow(a, conn, system, created.Workload, true)
	}
	h := handover{app: a, gateway: conn.gateway(), system: system, record: record{Request: request, Agent: agent}}
	w, err := a.uninterrupted(created.Workload.ID, func(ctx context.Context) (api.Workload, error) { return h.submit(ctx, created) })
	if err != nil {
		return errors.Join(err, conn.close())
	}
	return c.follow(a, conn, system, w, false)
}

// startsWithin is how long the ranks of a job that runs may take to be there, before Slurm's half minute.
const startsWithin = 30 * time.Second

// lateRanks says where Slurm's one warning before the walltime may come before anybody is there to hear it; "": nowhere.
func lateRanks(r scheduler.Request) string {
	const early = 30 * time.Second // Slurm looks so often, and rather warns too early
	before := r.Signal.BeforeWalltime
	if r.System != "slurm" || before == 0 || r.Walltime-before >= early+startsWithin {
		return ""
	}
	return fmt.Sprintf("Slurm warns once and up to %s early: %s before the end of %s that may be before the ranks are there, and then nobody is warned; raise walltime, or shorten [signal] before_walltime",
		early, before, r.Walltime)
}

// maxRecover bounds --recover, as the gateway does.
const maxRecover = 100

// check refuses flags that contradict each other.
func (c *submitCommand) check(a *app) error {
	switch {
	case c.Job == "" && c.Resume == "":
		return usage("submit wants a job file")
	case c.Job != "" && c.Resume != "":
		return usage("--resume goes on with a workload that exists: no job file beside it")
	case c.Recover < 0 || c.Recover > maxRecover:
		return usage("--recover must be 0 to %d", maxRecover)
	case c.Resume != "" && c.DryRun:
		return usage("--resume and --dry-run don't go together")
	case c.Logs != nil && *c.Logs && (a.json || c.Quiet):
		return usage("--logs doesn't go with --json or --quiet: standard output can hold one of them only")
	}
	return nil
}

// create is what the gateway is asked to make. A key of our own lets a lost answer be asked for again.
func (c *submitCommand) create(j scheduler.Job, r scheduler.Request) (api.Create, error) {
	secrets, err := readSecrets(j)
	if err != nil {
		return api.Create{}, err
	}
	key := c.IdempotencyKey
	if key == "" {
		key = "cli-" + uuid.NewString()
	}
	setup := append(append([]string{}, r.Prologue...), j.Setup...)
	return api.Create{
		IdempotencyKey: key,
		Labels:         j.Labels,
		Request:        r,
		Start:          api.Start{Argv: j.Command, Setup: setup, Env: j.Env, Secrets: secrets},
		Outputs:        j.Outputs,
		Recover:        c.Recover,
	}, nil
}

// make asks the gateway for the workload. An embedded gateway that went away in between is replaced once.
func (c *submitCommand) make(ctx context.Context, conn *connection, create api.Create) (api.Created, error) {
	created, err := conn.gateway().Create(ctx, create)
	if answer := new(api.Error); err != nil && conn.embedded && conn.serving() == nil && !errors.As(err, &answer) && ctx.Err() == nil {
		if err := conn.dial(ctx); err != nil {
			return api.Created{}, err
		}
		created, err = conn.gateway().Create(ctx, create)
	}
	if err != nil {
		return api.Created{}, fmt.Errorf("making the workload: %w", err)
	}
	return created, nil
}

// resume settles a submission that is unknown.
func (c *submitCommand) resume(a *app, s site.Site) error {
	early, release := a.interruptible(context.Background())
	defer release()
	system, err := systems.For(s)
	if err != nil {
		return badFile(err)
	}
	conn, err := a.connect(early, s, c.gatewayFlags)
	if err != nil {
		return err
	}
	w, err := conn.gateway().Get(early, c.Resume)
	release()
	if err != nil {
		return errors.Join(err, conn.close())
	}
	if w.Phase == scheduler.Submitting {
		h := handover{app: a, gateway: conn.gateway(), system: system}
		w, err = a.uninterrupted(w.ID, func(ctx context.Context) (api.Workload, error) { return h.resume(ctx, w, s.RuntimeDir) })
		if err != nil {
			return errors.Join(err, conn.close())
		}
	}
	return c.follow(a, conn, system, w, false)
}

// uninterrupted runs the part that must not stop half-way: the first Ctrl-C is noted and waits for its end, the
// second leaves with the words that settle it later.
func (a *app) uninterrupted(id scheduler.WorkloadID, fn func(context.Context) (api.Workload, error)) (api.Workload, error) {
	type outcome struct {
		w   api.Workload
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		w, err := fn(context.Background())
		done <- outcome{w, err}
	}()
	asked := false
	for {
		select {
		case o := <-done:
			if asked { // what it meant is decided by whoever waits next
				a.interrupts <- interruptAgain{}
			}
			return o.w, o.err
		case <-a.interrupts:
			if asked {
				return api.Workload{}, &failure{exit: exitUnknown, cause: errInterrupted,
					message: fmt.Sprintf("left while %s was being submitted", id),
					hint:    "openai4s submit --resume " + string(id)}
			}
			asked = true
			a.note("finishing the submission of %s first; Ctrl-C once more leaves it unknown", id)
		}
	}
}

// interruptAgain is a Ctrl-C kept for the next part of a command.
type interruptAgain struct{}

func (interruptAgain) Signal()        {}
func (interruptAgain) String() string { return "interrupt" }

// follow shows what became of the submission and waits where asked to, or where this process serves the gateway.
func (c *submitCommand) follow(a *app, conn *connection, system scheduler.System, w api.Workload, existing bool) error {
	if !c.Wait && !conn.embedded {
		return a.showSubmitted(w, existing, c.Quiet)
	}
	logs := conn.embedded && !a.json && !c.Quiet
	if c.Logs != nil {
		logs = *c.Logs
	}
	waiting := waiting{
		app: a, conn: conn, system: system,
		logs: logs, quiet: c.Quiet || a.json, cancels: conn.embedded,
	}
	if !c.Quiet && !a.json {
		if existing {
			a.note("the idempotency key is known: nothing was submitted")
		}
		a.note("%s", submittedLine(w))
	}
	last, err := waiting.run(w)
	if err != nil {
		return errors.Join(err, conn.close())
	}
	if a.json {
		err = a.print(submitted{Workload: last, Existing: existing})
	}
	return errors.Join(endOf(last), err, a.stayWhileNeeded(conn), conn.close())
}

// submitted is the answer of submit with --json: the workload, and whether it was there before.
type submitted struct {
	api.Workload
	Existing bool `json:"existing,omitempty"`
}

// showSubmitted prints the id alone on standard output, so that scripts can take it.
func (a *app) showSubmitted(w api.Workload, existing, quiet bool) error {
	if a.json {
		return a.print(submitted{Workload: w, Existing: existing})
	}
	if !quiet {
		if existing {
			a.note("the idempotency key is known: nothing was submitted")
		}
		a.note("%s", submittedLine(w))
	}
	if _, err := fmt.Fprintln(a.out, w.ID); err != nil {
		return fmt.Errorf("writing standard output: %w", err)
	}
	return nil
}

func submittedLine(w api.Workload) string {
	line := fmt.Sprintf("%s %s: %s", w.ID, word(w.Name), sizeText(w))
	if w.Job.ID != "" {
		line += ", job " + word(scheduler.JobID{Cluster: w.Job.Cluster, ID: w.Job.ID}.String())
	}
	return line
}
