package slurm_test

import (
	"context"
	"os"
	"os/user"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/schedulertest"
	"github.com/openai4s/hpc/scheduler/slurm"
	"github.com/openai4s/hpc/tests/fakeslurm"
)

const (
	wait = 30 * time.Second
	tick = 20 * time.Millisecond
)

func TestMain(m *testing.M) { os.Exit(fakeslurm.Run(m)) }

// TestSuiteOnFake holds the System to the contract on a Slurm that fits into a test.
func TestSuiteOnFake(t *testing.T) {
	for name, o := range map[string]fakeslurm.Options{
		"with accounting":    {Accounting: true, Minute: 300 * time.Millisecond, MinJobAge: time.Nanosecond},
		"without accounting": {Minute: 300 * time.Millisecond},
		"later version":      {Accounting: true, Modern: true, Minute: 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness(t, slurm.New(fakeslurm.New(t, o).Commands()), me(t))
			h.Walltime = time.Minute
			schedulertest.Run(t, h)
		})
	}
}

// harness is the suite's for jobs of one user; each of them is done in 60 minutes if it says nothing else.
func harness(t *testing.T, s scheduler.System, who scheduler.Identity) schedulertest.Harness {
	return schedulertest.Harness{
		System: s,
		Submission: func(t *testing.T, j schedulertest.Job) scheduler.Submission {
			args := []string{"--job-name=" + j.Name, "--nodes=1", "--ntasks=1", "--chdir=/tmp", "--output=/dev/null", "--no-requeue"}
			if j.Walltime > 0 {
				args = append(args, "--time="+strconv.Itoa(int(j.Walltime/time.Minute)))
			} else {
				args = append(args, "--time=60")
			}
			return scheduler.Submission{Name: j.Name, Args: args, Script: j.Script()}
		},
		Identity: func(name string) scheduler.Identity {
			id := who
			id.Name = name
			return id
		},
		Unknown: scheduler.JobID{ID: "8888888"},
		Rejected: func(t *testing.T) scheduler.Submission {
			return scheduler.Submission{
				Name: "openai4s-suite-refused", Args: []string{"--job-name=openai4s-suite-refused", "--partition=nosuch"},
				Script: []byte("#!/bin/sh\n"),
			}
		},
	}
}

func me(t *testing.T) scheduler.Identity {
	u, err := user.Current()
	require.NoError(t, err)
	return scheduler.Identity{UID: os.Getuid(), User: u.Username}
}

// over is a context that has ended.
func over(t *testing.T) context.Context {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	return ctx
}
