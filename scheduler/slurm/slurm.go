// Package slurm drives Slurm by its own commands: sbatch, squeue, sacct, scancel, scontrol and sacctmgr, and no
// others. It reads only formats that it spells out field by field, never --json (whose shape changed between
// versions, and which answers an empty list when the controller is down) and never a table. Versions 20.11 and
// later are understood; 22.05, 24.11 and 26.05 are tested.
package slurm

import (
	"sync"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// System runs the scheduler's commands as the calling user. It is safe for concurrent use; submissions of one
// System go one at a time.
type System struct {
	run   runner
	pace  *pacer
	limit limits

	mu         sync.Mutex
	accounting *accountingMode // nil until the controller told
}

var (
	_ scheduler.System    = (*System)(nil)
	_ scheduler.Inspector = (*System)(nil)
)

// limits are how long each kind of command may take. A submission is never cut short for slowness: a client that
// gives up on a slow sbatch leaves a job behind that nobody knows of.
type limits struct {
	submit time.Duration
	query  time.Duration
	cancel time.Duration
}

// New returns the System; commands maps a command's name to an absolute path where PATH won't do.
func New(commands map[string]string) *System {
	return &System{
		run:   runner{commands: commands},
		pace:  newPacer(),
		limit: limits{submit: 5 * time.Minute, query: 30 * time.Second, cancel: 30 * time.Second},
	}
}
