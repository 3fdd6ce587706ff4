package slurm_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/tests/fakeslurm"
)

func TestCase24FailedQueryChangesNothing(t *testing.T) {
	f, s, who := fake(t, fakeslurm.Options{Accounting: true})
	id := submit(t, s, submission()).Job
	require.Equal(t, scheduler.Granted, observe(t, s, id).Phase)
	for name, fault := range map[string]fakeslurm.Fault{
		"controller down": fakeslurm.ControllerDown("squeue"),
		"munge down":      fakeslurm.MungeDown("squeue"),
		"killed":          {Skip: true, Code: 137},
		"no words":        {Skip: true, Code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f.Break(t, "squeue", fault)
			defer f.Mend(t)
			_, err := s.Observe(t.Context(), []scheduler.JobID{id, {ID: "999"}})
			assert.ErrorIs(t, err, scheduler.ErrNoAnswer)
			_, err = s.Observe(t.Context(), []scheduler.JobID{id})
			assert.ErrorIs(t, err, scheduler.ErrNoAnswer)
			assert.ErrorIs(t, s.Cancel(t.Context(), id, who), scheduler.ErrNoAnswer)
			assert.Empty(t, f.Ran(t, "scancel"))
		})
	}
	assert.Equal(t, scheduler.Granted, observe(t, s, id).Phase)
}

func TestCase25EmptyAnswer(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{Accounting: true})
	id := submit(t, s, submission()).Job
	// A queue that lists nothing, exit code 0, while accounting has the job running.
	f.Break(t, "squeue", fakeslurm.Fault{Mute: true})
	a, err := s.Observe(t.Context(), []scheduler.JobID{id})
	require.NoError(t, err)
	assert.Empty(t, a.Known)
	assert.ErrorIs(t, a.Unanswered[id], scheduler.ErrNoAnswer)
	assert.ErrorContains(t, a.Unanswered[id], "accounting has it as RUNNING")
}

func TestCase26GoneWithoutAccounting(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{})
	id := submit(t, s, submission()).Job
	f.Set(t, 1, func(j *fakeslurm.Job) { j.Gone = true })
	a, err := s.Observe(t.Context(), []scheduler.JobID{id})
	require.NoError(t, err)
	assert.Empty(t, a.Known, "never told as completed")
	assert.Empty(t, a.Unanswered)
}

func TestCase27DatabaseDown(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{Accounting: true})
	live := submit(t, s, submission()).Job
	gone := submit(t, s, submission()).Job
	f.Set(t, 2, func(j *fakeslurm.Job) { j.Gone, j.State = true, "COMPLETED" })
	f.Break(t, "sacct", fakeslurm.DatabaseDown("sacct"))
	a, err := s.Observe(t.Context(), []scheduler.JobID{live, gone})
	require.NoError(t, err)
	assert.Equal(t, scheduler.Granted, a.Known[live].Phase)
	assert.ErrorIs(t, a.Unanswered[gone], scheduler.ErrNoAnswer)
	f.Mend(t)
	assert.Equal(t, scheduler.Completed, observe(t, s, gone).Phase)
}

func TestCase29ManyIDs(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{Accounting: true})
	live := submit(t, s, submission()).Job
	ids := []scheduler.JobID{live}
	for i := range 2500 {
		ids = append(ids, scheduler.JobID{ID: strconv.Itoa(100000 + i)})
	}
	a, err := s.Observe(t.Context(), ids)
	require.NoError(t, err)
	assert.Len(t, a.Known, 1)
	assert.Empty(t, a.Unanswered)
	for _, command := range []string{"squeue", "sacct"} {
		assert.Len(t, f.Ran(t, command), map[string]int{"squeue": 3, "sacct": 4}[command], "sacct's options were asked for once")
		for _, args := range f.Ran(t, command) {
			assert.Less(t, len(strings.Join(args, " ")), 16<<10)
		}
	}
}

func TestCase23OneQueryForAll(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{})
	var ids []scheduler.JobID
	for range 5 {
		ids = append(ids, submit(t, s, submission()).Job)
	}
	a, err := s.Observe(t.Context(), ids)
	require.NoError(t, err)
	assert.Len(t, a.Known, 5)
	assert.Len(t, f.Ran(t, "squeue"), 1)
}

func TestCase37IDsAreOpaque(t *testing.T) {
	f, s, who := fake(t, fakeslurm.Options{Accounting: true})
	for _, id := range []scheduler.JobID{{ID: "1; rm -rf /"}, {ID: "--help"}, {ID: ""}, {ID: "1,2"}, {ID: "123[].server"}, {ID: "1", Cluster: "a,b"}, {ID: "1", Cluster: "--x"}} {
		a, err := s.Observe(t.Context(), []scheduler.JobID{id})
		if err == nil {
			assert.ErrorIs(t, a.Unanswered[id], scheduler.ErrNoAnswer, "%v", id)
			assert.Empty(t, a.Known)
		}
		assert.Error(t, s.Cancel(t.Context(), id, who))
	}
	assert.Empty(t, f.Ran(t, "squeue"), "none of them reached a command line")
	assert.Empty(t, f.Ran(t, "scancel"))
}

func TestCase38NamesOfOthers(t *testing.T) {
	f, s, who := fake(t, fakeslurm.Options{Accounting: true})
	id := submit(t, s, submission()).Job
	mean := submit(t, s, submission()).Job
	for _, name := range []string{"\xff\xfe\x00", "two\nlines", "x\n1|COMPLETED|None|0|0||||||0|" + jobName, strings.Repeat("|", 300), "\x1b[2J"} {
		f.Set(t, 2, func(j *fakeslurm.Job) { j.Name = name })
		a, err := s.Observe(t.Context(), []scheduler.JobID{id, mean})
		require.NoError(t, err)
		require.Len(t, a.Known, 2)
		assert.Equal(t, scheduler.Granted, a.Known[id].Phase)
		assert.Equal(t, jobName, a.Known[id].Name)
		for _, c := range a.Known[mean].Name {
			assert.GreaterOrEqual(t, c, ' ')
		}
		ids, err := s.Find(t.Context(), who)
		require.NoError(t, err)
		assert.Equal(t, []scheduler.JobID{id}, ids)
	}
}

func TestCase65CancelTakesTheJobMeant(t *testing.T) {
	f, s, who := fake(t, fakeslurm.Options{Accounting: true})
	id, other := submit(t, s, submission()).Job, submit(t, s, submission()).Job
	f.Set(t, 2, func(j *fakeslurm.Job) { j.Name = "somebody's own" })

	assert.ErrorIs(t, s.Cancel(t.Context(), other, who), scheduler.ErrNotOurs, "its name")
	stranger := who
	stranger.UID++
	assert.ErrorIs(t, s.Cancel(t.Context(), id, stranger), scheduler.ErrNotOurs, "its user")
	nameless := who
	nameless.Name = ""
	assert.ErrorIs(t, s.Cancel(t.Context(), id, nameless), scheduler.ErrNotOurs)
	assert.Empty(t, f.Ran(t, "scancel"))

	require.NoError(t, s.Cancel(t.Context(), id, who))
	assert.Equal(t, [][]string{{"1"}}, f.Ran(t, "scancel"), "by its id, and nothing else")
	assert.Equal(t, scheduler.Granted, observe(t, s, other).Phase)
	require.Eventually(t, func() bool { return observe(t, s, id).Phase == scheduler.Cancelled }, wait, tick)

	f.Break(t, "scancel", fakeslurm.Fault{Skip: true, Code: 210, Stderr: "scancel: error: Kill job error on job id 2: Access/permission denied\n"})
	f.Set(t, 2, func(j *fakeslurm.Job) { j.Name = jobName })
	assert.ErrorIs(t, s.Cancel(t.Context(), other, who), os.ErrPermission)
	f.Mend(t)
	f.Break(t, "scancel", fakeslurm.ControllerDown("scancel"))
	assert.ErrorIs(t, s.Cancel(t.Context(), other, who), scheduler.ErrNoAnswer)
}

func TestOthersAreHidden(t *testing.T) {
	for name, c := range map[string]struct {
		o    fakeslurm.Options
		sees bool
	}{
		"open":                        {fakeslurm.Options{Accounting: true}, true},
		"open, without accounting":    {fakeslurm.Options{}, true},
		"private":                     {fakeslurm.Options{Accounting: true, Private: true}, os.Getuid() == 0},
		"private, without accounting": {fakeslurm.Options{Private: true}, os.Getuid() == 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, s, _ := fake(t, c.o)
			facts, err := s.Facts(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.sees, facts.SeesOthers)
			assert.Equal(t, c.o.Accounting, facts.Accounting)
		})
	}
	t.Run("slurmdbd doesn't say", func(t *testing.T) {
		f, s, _ := fake(t, fakeslurm.Options{Accounting: true})
		f.Break(t, "sacctmgr", fakeslurm.DatabaseDown("sacctmgr"))
		facts, err := s.Facts(t.Context())
		require.NoError(t, err)
		assert.False(t, facts.SeesOthers)
	})
	t.Run("nobody says", func(t *testing.T) {
		f, s, _ := fake(t, fakeslurm.Options{})
		f.Break(t, "scontrol", fakeslurm.ControllerDown("scontrol"))
		_, err := s.Facts(t.Context())
		assert.ErrorIs(t, err, scheduler.ErrNoAnswer)
	})
}

func TestInspectOnFake(t *testing.T) {
	f, s, _ := fake(t, fakeslurm.Options{Accounting: true})
	c, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"lab"}, c.Accounts)
	assert.Equal(t, []string{"normal"}, c.QoS)
	assert.Empty(t, c.Warnings)
	require.Len(t, c.Partitions, 1)
	assert.Equal(t, 4, c.Partitions[0].GPUsPerNode)

	f.Break(t, "sacctmgr", fakeslurm.DatabaseDown("sacctmgr"))
	c, err = s.Inspect(t.Context())
	require.NoError(t, err, "accounts are no reason to fail")
	assert.Len(t, c.Warnings, 1)
	assert.Contains(t, fmt.Sprint(c.Warnings), "accounts and QoS are unknown")
}
