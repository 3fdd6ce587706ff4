package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/openai4s/hpc/sbatch"
	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/site"
)

// The ids that stand in a script which isn't submitted.
const (
	placeholderWorkload   scheduler.WorkloadID   = "wl_000000000000"
	placeholderAllocation scheduler.AllocationID = "alloc_000000000000"
)

type renderCommand struct {
	Job string `arg:"" name:"job.toml" help:"The job file."`
	jobFlags
}

func (renderCommand) Help() string {
	return `The script goes to standard output with the submit command as its last comment; ids are placeholders, since only
a submission makes real ones. No gateway and no scheduler is asked.

Example:

    openai4s render --nodes 4 examples/hello/job.toml`
}

func (c *renderCommand) Run(a *app) error {
	s, err := a.loadSite()
	if err != nil {
		return err
	}
	return a.render(s, c.jobFlags, c.Job)
}

// rendering is the answer of render with --json.
type rendering struct {
	Name    string            `json:"name"`
	Command []string          `json:"command"` // the script goes to its standard input; local: the arguments alone
	Run     string            `json:"run"`
	Request scheduler.Request `json:"request"`
	Script  string            `json:"script"`
}

// render shows what a submission would hand to the scheduler. It writes nothing anywhere.
func (a *app) render(s site.Site, flags jobFlags, path string) error {
	_, request, err := flags.load(s, path)
	if err != nil {
		return err
	}
	agent, source, found, err := agentPath(s, request.RuntimeDir)
	if err != nil {
		return err
	}
	if !found {
		a.note("there is no %s at %s: submit would refuse", agentName, source)
	}
	start, err := launcher(request)
	if err != nil {
		return err
	}
	submission, err := sbatch.Render(request, scheduler.Launch{
		Workload:   placeholderWorkload,
		Allocation: placeholderAllocation,
		JobName:    scheduler.JobName(request, placeholderAllocation),
		Dir:        filepath.Join(request.RuntimeDir, string(placeholderWorkload)),
		Agent:      agent,
		Launcher:   start,
	})
	if err != nil {
		return fmt.Errorf("rendering the script: %w", err)
	}
	command := append(submitProgram(s), submission.Args...)
	if a.json {
		return a.print(rendering{Name: submission.Name, Command: command, Run: submission.Dir, Request: request, Script: string(submission.Script)})
	}
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = sbatch.Quote(w)
	}
	how := "submitted by: " + strings.Join(words, " ") + " < this script"
	if s.Scheduler == "local" {
		how = "run by openai4s itself, with: " + strings.Join(words, " ")
	}
	_, err = fmt.Fprintf(a.out, "%s\n# %s\n", strings.TrimRight(string(submission.Script), "\n"), how)
	if err != nil {
		return fmt.Errorf("writing standard output: %w", err)
	}
	return nil
}

// submitProgram is the command that takes the script, as the site names it; none where openai4s runs it itself.
func submitProgram(s site.Site) []string {
	name := map[string]string{"slurm": "sbatch", "pbs": "qsub"}[s.Scheduler]
	switch path := s.Commands[name]; {
	case path != "":
		return []string{path}
	case name != "":
		return []string{name}
	}
	return nil
}
