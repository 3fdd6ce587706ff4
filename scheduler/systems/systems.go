// Package systems picks the System a site names.
package systems

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/local"
	"github.com/openai4s/hpc/scheduler/pbs"
	"github.com/openai4s/hpc/scheduler/slurm"
	"github.com/openai4s/hpc/site"
)

// Full is what every scheduler of ours can do.
type Full interface {
	scheduler.System
	scheduler.Inspector
}

// SuperviseCommand and LaunchCommand are the CLI's hidden commands behind the local scheduler.
const (
	SuperviseCommand = "local-supervise"
	LaunchCommand    = "local-launch"
)

// For returns the System that the site names.
func For(s site.Site) (Full, error) {
	switch s.Scheduler {
	case "slurm":
		return slurm.New(s.Commands), nil
	case "pbs":
		return pbs.New(s.Commands), nil
	case "local":
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding this program's own path: %w", err)
		}
		return local.New(filepath.Join(s.RuntimeDir, "local"), []string{self, SuperviseCommand}), nil
	}
	return nil, fmt.Errorf("unknown scheduler %q", s.Scheduler)
}

// Supervise runs a local job's supervisor: the hidden command SuperviseCommand.
func Supervise(dir string) int { return local.Supervise(dir) }

// Launch runs a local job's launcher: the hidden command LaunchCommand.
func Launch(args []string) int { return local.Launch(args) }
