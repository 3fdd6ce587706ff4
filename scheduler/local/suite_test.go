package local_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/schedulertest"
)

func TestSuite(t *testing.T) {
	work := t.TempDir()
	submission := func(_ *testing.T, j schedulertest.Job) scheduler.Submission {
		args := []string{"--chdir=" + work, "--output=" + filepath.Join(work, "%j.out"), "--kill-delay=1s"}
		if j.Walltime > 0 {
			args = append(args, "--time="+j.Walltime.String())
		}
		return scheduler.Submission{Name: j.Name, Args: args, Script: j.Script(), Dir: work}
	}
	schedulertest.Run(t, schedulertest.Harness{
		System:     newSystem(t),
		Submission: submission,
		Identity:   me,
		Unknown:    scheduler.JobID{ID: "987654321"},
		Rejected: func(t *testing.T) scheduler.Submission {
			sub := submission(t, schedulertest.Job{Name: "openai4s-rejected-0123456789ab"})
			sub.Args = append(sub.Args, "--no-such-option=1")
			return sub
		},
		Walltime: 300 * time.Millisecond,
		Patience: patience,
	})
}

// me is this user's identity for a job of that name.
func me(name string) scheduler.Identity { return scheduler.Identity{UID: os.Getuid(), Name: name} }
