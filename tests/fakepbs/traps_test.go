package fakepbs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/schedulertest"
	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
)

// submit hands over a job of that name and script, and returns its id.
func submit(t *testing.T, h schedulertest.Harness, name, script string, extra ...string) scheduler.JobID {
	t.Helper()
	s := h.Submission(t, schedulertest.Job{Name: name})
	s.Script = []byte(script)
	s.Args = append(s.Args, extra...)
	r, err := h.System.Submit(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, scheduler.Created, r.Outcome, "%+v", r)
	return r.Job
}

func phase(t *testing.T, h schedulertest.Harness, id scheduler.JobID, want scheduler.Phase) scheduler.Observation {
	t.Helper()
	var o scheduler.Observation
	require.Eventually(t, func() bool {
		a, err := h.System.Observe(t.Context(), []scheduler.JobID{id})
		require.NoError(t, err)
		o = a.Known[id]
		return o.Phase == want
	}, 20*time.Second, 20*time.Millisecond, "job %s is not %s", id, want)
	return o
}

func TestCase05HangingQsubLeftAJob(t *testing.T) {
	config := fakepbs.Default()
	config.LoseAnswer = true
	l := lab.Start(t, config)
	h := harness(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		defer cancel() // patience ends once the job is there
		for found := []scheduler.JobID(nil); len(found) == 0 && ctx.Err() == nil; {
			found, _ = h.System.Find(ctx, h.Identity("o-lost")) // no answer yet
		}
	}()
	r, err := h.System.Submit(ctx, h.Submission(t, schedulertest.Job{Name: "o-lost", Forever: true}))
	require.NoError(t, err)
	assert.Equal(t, scheduler.Unknown, r.Outcome)
	found, err := h.System.Find(t.Context(), h.Identity("o-lost"))
	require.NoError(t, err)
	require.Len(t, found, 1, "the job that nobody was told of")
	require.NoError(t, h.System.Cancel(t.Context(), found[0], h.Identity("o-lost")))
	phase(t, h, found[0], scheduler.Cancelled)
}

func TestCase03ALateIDIsUsed(t *testing.T) {
	config := fakepbs.Default()
	config.SubmitDelay = 500 * time.Millisecond
	h := harness(t, lab.Start(t, config))
	submit(t, h, "o-late", "exit 0\n")
}

func TestHistoryOffFindsLiveJobsAndForgetsOthers(t *testing.T) {
	config := fakepbs.Default()
	config.History = false
	h := harness(t, lab.Start(t, config))
	id := submit(t, h, "o-hist", "sleep 60\n")
	phase(t, h, id, scheduler.Granted)
	found, err := h.System.Find(t.Context(), h.Identity("o-hist"))
	require.NoError(t, err)
	assert.Equal(t, []scheduler.JobID{id}, found)
	require.NoError(t, h.System.Cancel(t.Context(), id, h.Identity("o-hist")))
	require.Eventually(t, func() bool {
		a, err := h.System.Observe(t.Context(), []scheduler.JobID{id})
		require.NoError(t, err)
		require.Empty(t, a.Unanswered)
		_, known := a.Known[id]
		return !known
	}, 20*time.Second, 20*time.Millisecond, "an ended job is absent, and nothing else is said of it")
	facts, err := h.System.Facts(t.Context())
	require.NoError(t, err)
	assert.False(t, facts.Accounting)
}

func TestCase24ServerDownOrSilentIsNoAnswer(t *testing.T) {
	config := fakepbs.Default()
	l := lab.Start(t, config)
	h := harness(t, l)
	id := submit(t, h, "o-down", "sleep 60\n")
	phase(t, h, id, scheduler.Granted)
	for name, change := range map[string]func(*fakepbs.Config){
		"down":   func(c *fakepbs.Config) { c.Down = true },
		"silent": func(c *fakepbs.Config) { c.Stall = 300 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			c := config
			change(&c)
			l.Configure(t, c)
			defer l.Configure(t, config)
			_, err := h.System.Observe(t.Context(), []scheduler.JobID{id})
			require.ErrorIs(t, err, scheduler.ErrNoAnswer)
			_, err = h.System.Find(t.Context(), h.Identity("o-down"))
			require.ErrorIs(t, err, scheduler.ErrNoAnswer)
			require.ErrorIs(t, h.System.Cancel(t.Context(), id, h.Identity("o-down")), scheduler.ErrNoAnswer)
			r, err := h.System.Submit(t.Context(), h.Submission(t, schedulertest.Job{Name: "o-none"}))
			require.NoError(t, err)
			assert.Equal(t, scheduler.Rejected, r.Outcome)
			assert.Equal(t, scheduler.BackendUnavailable, r.Reason)
		})
	}
	phase(t, h, id, scheduler.Granted)
}

func TestOthersJobsThatAreHiddenAreNotAbsent(t *testing.T) {
	config := fakepbs.Default()
	config.HideOthers = true
	h := harness(t, lab.Start(t, config))
	t.Setenv("FAKEPBS_USER", "eve")
	id := submit(t, h, "o-eve", "sleep 60\n")
	require.NoError(t, os.Unsetenv("FAKEPBS_USER"))
	a, err := h.System.Observe(t.Context(), []scheduler.JobID{id})
	require.NoError(t, err)
	assert.Contains(t, a.Unanswered, id)
	facts, err := h.System.Facts(t.Context())
	require.NoError(t, err)
	assert.False(t, facts.SeesOthers)
}

func TestCase65AnotherUsersJobIsNotCancelled(t *testing.T) {
	h := harness(t, lab.Start(t, fakepbs.Default()))
	t.Setenv("FAKEPBS_USER", "eve")
	id := submit(t, h, "o-eve", "sleep 60\n")
	require.NoError(t, os.Unsetenv("FAKEPBS_USER"))
	require.ErrorIs(t, h.System.Cancel(t.Context(), id, h.Identity("o-eve")), scheduler.ErrNotOurs)
	who := h.Identity("o-eve")
	who.User = "eve" // even if the books are wrong, the server refuses
	require.ErrorIs(t, h.System.Cancel(t.Context(), id, who), scheduler.ErrNotOurs)
	phase(t, h, id, scheduler.Granted)
}

func TestCase36StrangeVariablesOfOthersChangeNothing(t *testing.T) {
	h := harness(t, lab.Start(t, fakepbs.Default()))
	mine := submit(t, h, "o-mine", "sleep 60\n")
	t.Setenv("BASH_FUNC_module%%", "() { \n    eval `x \"$@\"`\n}")
	t.Setenv("FORGED", "x\n\nJob Id: "+mine.ID+"\n    Job_Name = o-mine\n    Job_Owner = a@b\n    job_state = F\n    substate = 92\n    Exit_status = 0\n")
	t.Setenv("BYTES", "\xff\xfe")
	t.Setenv("TAIL", `back\`)
	eve := submit(t, h, "o-eve", "sleep 60\n", "-V")
	for range 3 {
		a, err := h.System.Observe(t.Context(), []scheduler.JobID{eve, mine})
		require.NoError(t, err)
		require.Empty(t, a.Unanswered)
		assert.NotEqual(t, scheduler.Completed, a.Known[mine].Phase)
		assert.Equal(t, "o-eve", a.Known[eve].Name)
	}
}

func TestTorqueIsToldApart(t *testing.T) {
	config := fakepbs.Default()
	config.Torque = true
	h := harness(t, lab.Start(t, config))
	_, err := h.System.Submit(t.Context(), h.Submission(t, schedulertest.Job{Name: "o-x"}))
	require.ErrorIs(t, err, scheduler.ErrUnsupported)
	_, err = h.System.Facts(t.Context())
	require.ErrorIs(t, err, scheduler.ErrUnsupported)
}

func TestALostFirstNodeEndsOrRequeuesTheJob(t *testing.T) {
	for rerun, want := range map[string]scheduler.Phase{"n": scheduler.Failed, "y": scheduler.Pending} {
		t.Run("-r "+rerun, func(t *testing.T) {
			config := fakepbs.Default()
			config.Hosts = []string{"n1"}
			l := lab.Start(t, config)
			h := harness(t, l)
			s := h.Submission(t, schedulertest.Job{Name: "o-lost", Forever: true})
			for i, a := range s.Args {
				if a == "-r" {
					s.Args[i+1] = rerun
				}
			}
			r, err := h.System.Submit(t.Context(), s)
			require.NoError(t, err)
			phase(t, h, r.Job, scheduler.Granted)
			l.LoseHost(t, "n1")
			o := phase(t, h, r.Job, want)
			if rerun == "n" {
				assert.Equal(t, scheduler.NodeFailed, o.Reason)
				assert.Equal(t, "n1", o.FailedNode)
				return
			}
			assert.True(t, o.Requeued)
			assert.Equal(t, 1, o.Restarts)
			l.ReturnHost(t, "n1")
			o = phase(t, h, r.Job, scheduler.Granted)
			assert.Equal(t, 1, o.Restarts)
			assert.False(t, o.Requeued)
		})
	}
}

func TestCancelWhereTheFirstNodeIsGone(t *testing.T) {
	config := fakepbs.Default()
	config.NodeFailRequeue = time.Hour
	l := lab.Start(t, config)
	h := harness(t, l)
	id := submit(t, h, "o-gone", "sleep 60\n")
	phase(t, h, id, scheduler.Granted)
	l.LoseHost(t, "n1")
	require.NoError(t, h.System.Cancel(t.Context(), id, h.Identity("o-gone")))
	phase(t, h, id, scheduler.Cancelled)
}

func TestHeldAfterFailedStartsIsTold(t *testing.T) {
	h := harness(t, lab.Start(t, fakepbs.Default()))
	s := h.Submission(t, schedulertest.Job{Name: "o-held"})
	for i, a := range s.Args {
		if a == "-o" {
			s.Args[i+1] = filepath.Join(t.TempDir(), "none", "out")
		}
	}
	r, err := h.System.Submit(t.Context(), s)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		a, err := h.System.Observe(t.Context(), []scheduler.JobID{r.Job})
		require.NoError(t, err)
		o := a.Known[r.Job]
		return o.Held && strings.Contains(o.Message, "21 failed attempts")
	}, 20*time.Second, 20*time.Millisecond)
}

func TestChildrenThatCalledSetsidSurviveQdel(t *testing.T) {
	l := lab.Start(t, fakepbs.Default())
	h := harness(t, l)
	dir := t.TempDir()
	id := submit(t, h, "o-setsid", fmt.Sprintf("setsid sh -c 'echo $$ >%s/pid; exec sleep 300' &\nsleep 300\n", dir))
	var pid int
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, h.System.Cancel(t.Context(), id, h.Identity("o-setsid")))
	phase(t, h, id, scheduler.Cancelled)
	assert.DirExists(t, fmt.Sprintf("/proc/%d", pid))
}

// A remote shell that was started deaf to TERM outlives qdel's and can tell how its task ended; another dies of it.
func TestRemoteShellsAndTerm(t *testing.T) {
	h := harness(t, lab.Start(t, fakepbs.Default()))
	dir := t.TempDir()
	script := fmt.Sprintf(`trap : TERM
cd %s
task='trap "sleep 0.5; exit 21" TERM; : >"$1/up.$0"; while :; do sleep 0.05; done'
(trap "" TERM; pbs_tmrsh n1 /bin/sh -c "$task" deaf "$PWD"; echo $? >deaf) &
(trap : TERM; pbs_tmrsh n1 /bin/sh -c "$task" other "$PWD" & P=$!; wait $P; wait $P; echo $? >other) &
while ! test -s deaf || ! test -s other; do sleep 0.05; done
`, dir)
	id := submit(t, h, "o-term", script)
	require.Eventually(t, func() bool {
		up, err := filepath.Glob(filepath.Join(dir, "up.*"))
		return err == nil && len(up) == 2
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, h.System.Cancel(t.Context(), id, h.Identity("o-term")))
	phase(t, h, id, scheduler.Cancelled)
	for name, want := range map[string]string{"deaf": "21\n", "other": "143\n"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(text), name)
	}
}

// The remote shell of a task gives its exit code; its output goes to the job's; arguments pass unchanged.
func TestRemoteShell(t *testing.T) {
	l := lab.Start(t, fakepbs.Default())
	h := harness(t, l)
	out := filepath.Join(t.TempDir(), "out")
	script := `cat "$PBS_NODEFILE"
pbs_tmrsh n2 /bin/sh -c 'echo "node $PBS_NODENUM $1"; exit 21' sh "a b" ; echo rc=$?
pbs_tmrsh nosuch /bin/true; echo rc=$?
pbs_tmrsh n2 /no/such/program; echo rc=$?
pbs_tmrsh n2 /bin/sh -c 'kill -9 $$'; echo rc=$?
export SECRET=x; pbs_tmrsh n2 /bin/sh -c 'echo "[$SECRET]"'
`
	s := h.Submission(t, schedulertest.Job{Name: "o-rsh"})
	s.Script = []byte(script)
	for i, a := range s.Args {
		switch {
		case a == "-o":
			s.Args[i+1] = out
		case strings.HasPrefix(a, "select="):
			s.Args[i] = "select=2:ncpus=2:mpiprocs=2"
		}
	}
	r, err := h.System.Submit(t.Context(), s)
	require.NoError(t, err)
	phase(t, h, r.Job, scheduler.Completed)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, "n1\nn1\nn2\nn2\nnode 1 a b\nrc=21\npbs_tmrsh: host \"nosuch\" is not a node in job <"+r.Job.ID+">\nrc=255\nrc=254\nrc=9\n[]\n", string(text))
}
