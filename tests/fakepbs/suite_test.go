package fakepbs_test

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/pbs"
	"github.com/openai4s/hpc/scheduler/schedulertest"
	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// harness lets the suite of all Systems loose on a cluster.
func harness(t *testing.T, l *lab.Lab) schedulertest.Harness {
	me, err := user.Current()
	require.NoError(t, err)
	dir := t.TempDir()
	submission := func(_ *testing.T, j schedulertest.Job) scheduler.Submission {
		wall := "01:00:00"
		if j.Walltime > 0 {
			wall = "00:00:01"
		}
		return scheduler.Submission{
			Name: j.Name,
			Args: []string{"-f", "-N", j.Name, "-l", "select=1:ncpus=1", "-l", "place=scatter", "-l", "walltime=" + wall,
				"-j", "oe", "-koed", "-o", filepath.Join(dir, j.Name), "-r", "n", "-S", "/bin/sh"},
			Script: j.Script(),
		}
	}
	return schedulertest.Harness{
		System:     pbs.New(l.Commands()),
		Submission: submission,
		Identity: func(name string) scheduler.Identity {
			return scheduler.Identity{UID: os.Getuid(), User: me.Username, Name: name}
		},
		Unknown: scheduler.JobID{ID: "999999.pbshead"},
		Rejected: func(t *testing.T) scheduler.Submission {
			s := submission(t, schedulertest.Job{Name: "openai4s-refused-0123456789ab"})
			s.Args = append(s.Args, "-q", "nosuch")
			return s
		},
		Walltime: time.Second,
	}
}

func TestSuite(t *testing.T) {
	schedulertest.Run(t, harness(t, lab.Start(t, fakepbs.Default())))
}

func itoa(n int) string { return strconv.Itoa(n) }
