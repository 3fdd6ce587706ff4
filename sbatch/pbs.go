package sbatch

import (
	"fmt"

	"github.com/openai4s/hpc/scheduler"
)

// renderPBS renders for PBS.
func renderPBS(scheduler.Request, scheduler.Launch) (scheduler.Submission, error) {
	return scheduler.Submission{}, fmt.Errorf("rendering for pbs: %w", scheduler.ErrUnsupported)
}
