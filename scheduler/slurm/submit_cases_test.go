package slurm_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/slurm"
	"github.com/openai4s/hpc/tests/fakeslurm"
)

// Faults that users of other tools reported, each by its number in the project's list of cases.

const jobName = "openai4s-case-0123456789ab"

// submission of a job that runs until something ends it.
func submission(args ...string) scheduler.Submission {
	return scheduler.Submission{
		Name:   jobName,
		Args:   append([]string{"--job-name=" + jobName, "--chdir=/tmp", "--output=/dev/null"}, args...),
		Script: []byte("#!/bin/sh\nexec sleep 600\n"),
	}
}

func fake(t *testing.T, o fakeslurm.Options) (*fakeslurm.Fake, *slurm.System, scheduler.Identity) {
	f := fakeslurm.New(t, o)
	who := me(t)
	who.Name = jobName
	return f, slurm.New(f.Commands()), who
}

func submit(t *testing.T, s *slurm.System, sub scheduler.Submission) scheduler.Receipt {
	t.Helper()
	r, err := s.Submit(t.Context(), sub)
	require.NoError(t, err)
	return r
}

func observe(t *testing.T, s *slurm.System, id scheduler.JobID) scheduler.Observation {
	t.Helper()
	a, err := s.Observe(t.Context(), []scheduler.JobID{id})
	require.NoError(t, err)
	require.Contains(t, a.Known, id)
	return a.Known[id]
}

func TestCase01AnswerLost(t *testing.T) {
	for name, job := range map[string]struct {
		script string
		o      fakeslurm.Options
	}{
		"the job runs on":               {"#!/bin/sh\nexec sleep 600\n", fakeslurm.Options{Accounting: true}},
		"it is over and left the queue": {"#!/bin/sh\n", fakeslurm.Options{Accounting: true, MinJobAge: time.Nanosecond}},
		"it is over, accounting is off": {"#!/bin/sh\n", fakeslurm.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, who := fake(t, job.o)
			f.Break(t, "sbatch", fakeslurm.SocketTimeout("sbatch"))
			sub := submission()
			sub.Script = []byte(job.script)
			r := submit(t, s, sub)
			assert.Equal(t, scheduler.Unknown, r.Outcome, "%+v", r)
			assert.Equal(t, scheduler.BackendSubmissionUnknown, r.Reason)
			assert.Contains(t, r.Text, "Socket timed out on send/recv operation")
			assert.Contains(t, r.Hint, "looked up by its name")
			require.Eventually(t, func() bool {
				ids, err := s.Find(t.Context(), who)
				require.NoError(t, err)
				return slices.Equal(ids, []scheduler.JobID{{ID: "1"}})
			}, wait, tick)
		})
	}
	t.Run("the look-up isn't answered", func(t *testing.T) {
		for _, command := range []string{"squeue", "sacct"} {
			f, s, who := fake(t, fakeslurm.Options{Accounting: true})
			f.Break(t, command, fakeslurm.DatabaseDown(command))
			ids, err := s.Find(t.Context(), who)
			assert.ErrorIs(t, err, scheduler.ErrNoAnswer, command)
			assert.Nil(t, ids)
		}
	})
}

func TestCase02BusyButGood(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{})
	f.Break(t, "sbatch", fakeslurm.Fault{Stderr: "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"})
	r := submit(t, s, submission())
	assert.Equal(t, scheduler.Created, r.Outcome)
	assert.Equal(t, scheduler.JobID{ID: "1"}, r.Job)
	assert.Contains(t, r.Text, "temporarily unable")
}

func TestCase03SlowSubmission(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{})
	f.Break(t, "sbatch", fakeslurm.Slow(300*time.Millisecond))
	begun := time.Now()
	r := submit(t, s, submission())
	assert.GreaterOrEqual(t, time.Since(begun), 300*time.Millisecond)
	assert.Equal(t, scheduler.Created, r.Outcome, "a late answer is used: %+v", r)
}

func TestCase04EmptyAnswer(t *testing.T) {
	f, s, who := fake(t, fakeslurm.Options{})
	f.Break(t, "sbatch", fakeslurm.Fault{Mute: true, Stderr: "sbatch: lab policy: thank you\n"})
	r := submit(t, s, submission())
	assert.Equal(t, scheduler.Unknown, r.Outcome)
	assert.True(t, r.Job.IsZero())
	assert.Contains(t, r.Text, "lab policy: thank you")
	ids, err := s.Find(t.Context(), who)
	require.NoError(t, err)
	assert.Equal(t, []scheduler.JobID{{ID: "1"}}, ids)
}

func TestCase06AuthenticationDown(t *testing.T) {
	t.Run("for the request: nothing was sent", func(t *testing.T) {
		f, s, _ := fake(t, fakeslurm.Options{})
		f.Break(t, "sbatch", fakeslurm.MungeDown("sbatch"))
		r := submit(t, s, submission())
		assert.Equal(t, scheduler.Rejected, r.Outcome)
		assert.Equal(t, scheduler.BackendUnavailable, r.Reason)
		assert.True(t, r.Later)
		assert.Contains(t, r.Hint, "munge")
		assert.Empty(t, f.Jobs(t))
	})
	t.Run("for the answer: the job is queued", func(t *testing.T) {
		f, s, _ := fake(t, fakeslurm.Options{})
		f.Break(t, "sbatch", fakeslurm.Fault{Mute: true, Code: 1, Stderr: "sbatch: error: Munge decode failed: Expired credential\n" +
			"sbatch: error: Batch job submission failed: Protocol authentication error\n"})
		assert.Equal(t, scheduler.Unknown, submit(t, s, submission()).Outcome)
		assert.Len(t, f.Jobs(t), 1)
	})
}

func TestCase07BannerBeforeID(t *testing.T) {
	for name, c := range map[string]struct {
		fault   fakeslurm.Fault
		outcome scheduler.Outcome
		id      string
	}{
		"words and numbers":       {fakeslurm.Banner("Welcome to cluster 3\ncharging account 12345\n  check 1   ok\n"), scheduler.Created, "1"},
		"after it":                {fakeslurm.Fault{After: "have a nice day, 42\n"}, scheduler.Created, "1"},
		"a line that is a number": {fakeslurm.Banner("4711\n"), scheduler.Unknown, ""},
		"no end of line":          {fakeslurm.Banner("job "), scheduler.Unknown, ""},
		"garbage":                 {fakeslurm.Fault{Mute: true, Before: "\x00\xff\x1b[31m12\n"}, scheduler.Unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, _ := fake(t, fakeslurm.Options{})
			f.Break(t, "sbatch", c.fault)
			r := submit(t, s, submission())
			assert.Equal(t, c.outcome, r.Outcome, "%+v", r)
			assert.Equal(t, c.id, r.Job.ID)
			assert.NotContains(t, r.Text, "\x1b")
		})
	}
}

func TestCase08ClusterInAnswer(t *testing.T) {
	for _, text := range []string{"12;c3\n", "Submitted batch job 12 on cluster c3\n"} {
		f, s, who := fake(t, fakeslurm.Options{Accounting: true})
		f.Break(t, "sbatch", fakeslurm.Fault{Mute: true, After: text})
		r := submit(t, s, submission())
		id := scheduler.JobID{Cluster: "c3", ID: "12"}
		require.Equal(t, id, r.Job)

		// Every later command says the cluster.
		f.Set(t, 1, func(j *fakeslurm.Job) { j.ID = 12 })
		assert.Equal(t, scheduler.Granted, observe(t, s, id).Phase)
		require.NoError(t, s.Cancel(t.Context(), id, who))
		for _, command := range []string{"squeue", "scancel"} {
			for _, args := range f.Ran(t, command) {
				assert.Contains(t, args, "--clusters=c3", command)
			}
			assert.NotEmpty(t, f.Ran(t, command))
		}
	}
}

func TestCase09WrappedCommands(t *testing.T) {
	f, _, _ := fake(t, fakeslurm.Options{})
	t.Setenv("PATH", t.TempDir()) // nothing is there
	r := submit(t, slurm.New(f.Commands()), submission())
	assert.Equal(t, scheduler.Created, r.Outcome, "paths of the site file are used: %+v", r)

	_, err := slurm.New(nil).Submit(t.Context(), submission())
	assert.ErrorContains(t, err, "looking for sbatch (set it under [site] commands")
	_, err = slurm.New(map[string]string{"sbatch": "bin/sbatch"}).Submit(t.Context(), submission())
	assert.ErrorContains(t, err, "not an absolute path")

	_, s, _ := fake(t, fakeslurm.Options{})
	r = submit(t, s, submission("--gpus-per-socket=2"))
	assert.Equal(t, scheduler.Rejected, r.Outcome)
	assert.Equal(t, scheduler.InvalidSpec, r.Reason)
	assert.Contains(t, r.Text, "unrecognized option '--gpus-per-socket=2'")
}

// script puts a command of our own in the place of one of Slurm's.
func script(t *testing.T, commands map[string]string, name, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	commands[name] = path
}

// environmentOf returns the variables that a command is run with.
func environmentOf(t *testing.T) map[string]string {
	t.Helper()
	commands := map[string]string{}
	file := filepath.Join(t.TempDir(), "env")
	script(t, commands, "sbatch", "env >"+file+"\necho 1\n")
	_, err := slurm.New(commands).Submit(t.Context(), submission())
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[k] = v
	}
	return env
}

func TestCase10Language(t *testing.T) {
	for k, v := range map[string]string{"LANG": "de_DE.UTF-8", "LC_ALL": "ja_JP.UTF-8", "LC_TIME": "de_DE", "LANGUAGE": "de", "TZ": "Asia/Tokyo", "SLURM_TIME_FORMAT": "relative"} {
		t.Setenv(k, v)
	}
	env := environmentOf(t)
	assert.Equal(t, "C", env["LC_ALL"])
	assert.Equal(t, "UTC", env["TZ"])
	assert.NotContains(t, env, "LANGUAGE")
	assert.NotContains(t, env, "LC_TIME")
	assert.NotContains(t, env, "SLURM_TIME_FORMAT")
}

func TestCase11OneAtATime(t *testing.T) {
	commands := map[string]string{}
	folder := filepath.Join(t.TempDir(), "busy")
	script(t, commands, "sbatch", "mkdir "+folder+" || exit 7\nsleep 0.05\nrmdir "+folder+"\necho $$\n")
	s := slurm.New(commands)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r, err := s.Submit(t.Context(), submission())
			assert.NoError(t, err)
			assert.Equal(t, scheduler.Created, r.Outcome, "%+v", r)
		})
	}
	all.Wait()
}

func TestCase11BusyControllerIsLeftAlone(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{})
	f.Break(t, "sbatch", fakeslurm.Fault{Times: 1, Skip: true, Code: 1, Stderr: "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n"})
	r := submit(t, s, submission())
	assert.Equal(t, scheduler.Rejected, r.Outcome)
	assert.True(t, r.Later)
	begun := time.Now()
	assert.Equal(t, scheduler.Created, submit(t, s, submission()).Outcome)
	assert.GreaterOrEqual(t, time.Since(begun), 125*time.Millisecond, "it waited for half a pause at least")
	begun = time.Now()
	assert.Equal(t, scheduler.Created, submit(t, s, submission()).Outcome)
	assert.Less(t, time.Since(begun), 10*time.Second)
}

func TestCase12LimitsThatPass(t *testing.T) {
	const violates = "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
	for limit, later := range map[string]bool{
		"QOSMaxSubmitJobPerUserLimit":   true,
		"AssocMaxSubmitJobLimit":        true,
		"AssocGrpSubmitJobsLimit":       true,
		"MaxSubmitJobsPerAccount":       true,
		"QOSGrpCPUMinutesLimit":         true,
		"QOSMaxWallDurationPerJobLimit": false,
		"AssocMaxNodePerJobLimit":       false,
		"QOSMaxCpuPerNode":              false,
		"QOSMinGRES":                    false,
		"":                              true,
	} {
		t.Run(limit, func(t *testing.T) {
			f, s, _ := fake(t, fakeslurm.Options{})
			words := []string{limit, violates}
			if limit == "" {
				words = words[1:] // versions before 20.11
			}
			f.Break(t, "sbatch", fakeslurm.Refuse(words...))
			r := submit(t, s, submission())
			assert.Equal(t, scheduler.Rejected, r.Outcome)
			assert.Equal(t, scheduler.PolicyRejected, r.Reason)
			assert.Equal(t, later, r.Later)
			assert.Contains(t, r.Text, limit)
			assert.NotEmpty(t, r.Hint)
		})
	}
}

func TestCase13NothingLeaksFromAnAllocation(t *testing.T) {
	gone := []string{"SLURM_CPU_BIND", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_JOB_ID", "SLURM_CLUSTERS", "SBATCH_PARTITION",
		"SRUN_DEBUG", "SQUEUE_FORMAT", "SACCT_FORMAT", "PMI_RANK", "PMIX_NAMESPACE", "PBS_JOBID", "SLURMD_NODENAME"}
	stay := []string{"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "HOME_OF_THE_USER"}
	for _, k := range slices.Concat(gone, stay) {
		t.Setenv(k, "x")
	}
	env := environmentOf(t)
	for _, k := range gone {
		assert.NotContains(t, env, k)
	}
	for _, k := range stay {
		assert.Equal(t, "x", env[k], k)
	}
	assert.Equal(t, os.Getenv("PATH"), env["PATH"])
}

func TestSubmitThatNeverRan(t *testing.T) {
	_, s, _ := fake(t, fakeslurm.Options{})
	_, err := s.Submit(over(t), submission())
	assert.Error(t, err)
	commands := map[string]string{"sbatch": filepath.Join(t.TempDir(), "nothing")}
	_, err = slurm.New(commands).Submit(t.Context(), submission())
	assert.ErrorIs(t, err, os.ErrNotExist)
}
