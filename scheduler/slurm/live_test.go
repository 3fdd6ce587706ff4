//go:build live

package slurm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/schedulertest"
	"github.com/openai4s/hpc/scheduler/slurm"
	"github.com/openai4s/hpc/tests/cluster"
)

// liveConf names the cluster of the tests that run as one of its users.
const liveConf = "O4S_SLURM_CONF"

// TestLive brings clusters up and runs the tests below on them, as an unprivileged user.
func TestLive(t *testing.T) {
	for name, o := range map[string]cluster.Options{
		"with accounting":    {Accounting: true, GPUs: 2},
		"without accounting": {},
		"forgetful":          {Accounting: true, Set: []string{"MinJobAge=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster.Up(t, o)
			c.Test(t, c.User(t, cluster.Alice), "^TestSuiteOnSlurm$", liveConf+"="+c.Conf)
		})
	}
}

// TestSuiteOnSlurm holds the System to the contract on the cluster that O4S_SLURM_CONF names, as whoever runs it.
func TestSuiteOnSlurm(t *testing.T) {
	conf := os.Getenv(liveConf)
	if conf == "" {
		t.Skip(liveConf + " names no cluster; TestLive brings some up")
	}
	t.Setenv("SLURM_CONF", conf)
	schedulertest.Run(t, harness(t, slurm.New(nil), me(t)))
}

// TestLiveTroubles: what users see of a scheduler that isn't well.
func TestLiveTroubles(t *testing.T) {
	c := cluster.Up(t, cluster.Options{Accounting: true})
	t.Setenv("SLURM_CONF", c.Conf)
	s := slurm.New(nil)
	up := filepath.Join(t.TempDir(), "up")
	sleeper := scheduler.Submission{Name: "sleeper", Args: []string{"--job-name=sleeper", "--chdir=/tmp", "--output=/dev/null"}, Script: fmt.Appendf(nil, "#!/bin/sh\n: >%s\nsleep 600\n", up)}
	live, err := s.Submit(t.Context(), sleeper)
	require.NoError(t, err)
	require.Equal(t, scheduler.Created, live.Outcome, "%+v", live)
	require.Eventually(t, func() bool { _, err := os.Stat(up); return err == nil }, wait, tick, "the job runs: one that is being launched while munged is down is requeued")
	unknown := scheduler.JobID{ID: "77777"}
	_, err = s.Facts(t.Context())
	require.NoError(t, err)

	t.Run("slurmdbd down", func(t *testing.T) {
		c.Stop(t, "slurmdbd")
		a, err := s.Observe(t.Context(), []scheduler.JobID{live.Job, unknown})
		require.NoError(t, err)
		require.Contains(t, a.Known, live.Job, "the queue alone is enough for it")
		require.ErrorIs(t, a.Unanswered[unknown], scheduler.ErrNoAnswer, "accounting may know it")
		_, err = s.Find(t.Context(), scheduler.Identity{UID: 0, User: "root", Name: "sleeper"})
		require.ErrorIs(t, err, scheduler.ErrNoAnswer)
		c.Heal(t)
	})
	for _, daemon := range []string{"munged", "slurmctld"} {
		t.Run(daemon+" down", func(t *testing.T) {
			c.Stop(t, daemon)
			_, err := s.Observe(t.Context(), []scheduler.JobID{live.Job, unknown})
			require.ErrorIs(t, err, scheduler.ErrNoAnswer)
			require.ErrorIs(t, s.Cancel(t.Context(), live.Job, scheduler.Identity{UID: 0, User: "root", Name: "sleeper"}), scheduler.ErrNoAnswer)
			r, err := s.Submit(t.Context(), sleeper)
			require.NoError(t, err)
			require.Equal(t, scheduler.Rejected, r.Outcome, "%+v", r)
			require.Equal(t, scheduler.BackendUnavailable, r.Reason)
			require.True(t, r.Later)
			require.NotEmpty(t, r.Hint)
			c.Heal(t)
			a, err := s.Observe(t.Context(), []scheduler.JobID{live.Job})
			require.NoError(t, err)
			require.Equal(t, scheduler.Granted, a.Known[live.Job].Phase)
		})
	}
}

// TestLiveLimits: limits that pass are no refusal of the job, those that can't be met are.
func TestLiveLimits(t *testing.T) {
	c := cluster.Up(t, cluster.Options{Accounting: true})
	t.Setenv("SLURM_CONF", c.Conf)
	s := slurm.New(nil)
	submit := func(args ...string) scheduler.Receipt {
		r, err := s.Submit(t.Context(), scheduler.Submission{Args: append([]string{"--chdir=/tmp", "--output=/dev/null"}, args...), Script: []byte("#!/bin/sh\nsleep 600\n")})
		require.NoError(t, err)
		return r
	}
	held := submit("--hold")
	require.Equal(t, scheduler.Created, held.Outcome, "%+v", held)
	wide := submit("--nodes=99")
	a, err := s.Observe(t.Context(), []scheduler.JobID{held.Job})
	require.NoError(t, err)
	require.True(t, a.Known[held.Job].Held)
	if wide.Outcome == scheduler.Created { // 22.05 takes what can never run; 24.11 refuses it
		a, err := s.Observe(t.Context(), []scheduler.JobID{wide.Job})
		require.NoError(t, err)
		require.Equal(t, scheduler.Unschedulable, a.Known[wide.Job].Reason, "%+v", a.Known[wide.Job])
	} else {
		require.Equal(t, scheduler.BackendRejected, wide.Reason, "%+v", wide)
		require.False(t, wide.Later)
		require.NotEmpty(t, wide.Hint)
	}

	c.Slurm(t, "sacctmgr", "--immediate", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=1")
	require.Eventually(t, func() bool {
		r := submit()
		return r.Outcome == scheduler.Rejected && r.Later && r.Reason == scheduler.PolicyRejected
	}, wait, tick)
	c.Slurm(t, "sacctmgr", "--immediate", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=-1", "MaxWall=5", "flags=DenyOnLimit")
	require.Eventually(t, func() bool {
		r := submit("--time=10")
		return r.Outcome == scheduler.Rejected && !r.Later && r.Reason == scheduler.PolicyRejected
	}, wait, tick)
}
