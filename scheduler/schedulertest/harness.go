// Package schedulertest is the one suite for all Systems: what holds for a stateful fake on PATH, for a live
// cluster and for the local scheduler alike. It assumes nothing of any of them; what differs is said in a Harness.
package schedulertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// Harness is a System and what the suite has to know of it.
type Harness struct {
	System scheduler.System

	// Submission makes a submission of one node and one rank that runs j.Script under the name j.Name. A fake that
	// doesn't run scripts reads what shall happen from j's other fields.
	Submission func(t *testing.T, j Job) scheduler.Submission

	// Identity is that of the submitting user, for a job of that name.
	Identity func(name string) scheduler.Identity

	// Unknown is a well-formed id that no job has or will have.
	Unknown scheduler.JobID

	// Rejected makes a submission that this scheduler refuses; nil where it takes everything.
	Rejected func(t *testing.T) scheduler.Submission

	// Walltime is the shortest walltime that this scheduler enforces in reasonable time; 0: there is none, and the
	// test of the time limit is left out.
	Walltime time.Duration

	// Advance is called between two looks at the scheduler, for fakes whose clock is the test's; nil: time passes.
	Advance func()

	// Patience bounds every wait; 0: a minute.
	Patience time.Duration

	// Every is the time between two looks; 0: 20 ms.
	Every time.Duration
}

// Job is what a test wants to run.
type Job struct {
	Name     string        // the job name: unique, and one that every scheduler takes
	Exit     int           // the script's exit code
	Signal   int           // that the script ends itself with, 0 for none
	Forever  bool          // it runs until something else ends it
	Walltime time.Duration // 0: any that is long enough
}

// Script does what j says, in the shell.
func (j Job) Script() []byte {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	switch {
	case j.Forever:
		b.WriteString("exec sleep 3600\n")
	case j.Signal != 0:
		fmt.Fprintf(&b, "kill -%d $$\nsleep 60\n", j.Signal)
	default:
		fmt.Fprintf(&b, "exit %d\n", j.Exit)
	}
	return []byte(b.String())
}

// newName is a job name nobody had before.
func newName() string {
	return "openai4s-suite-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
}

// submit hands a job over and has it cancelled when the test ends.
func (h Harness) submit(t *testing.T, j Job) (scheduler.JobID, scheduler.Identity) {
	t.Helper()
	if j.Name == "" {
		j.Name = newName()
	}
	who := h.Identity(j.Name)
	receipt, err := h.System.Submit(t.Context(), h.Submission(t, j))
	require.NoError(t, err)
	require.Equal(t, scheduler.Created, receipt.Outcome, "receipt: %+v", receipt)
	require.False(t, receipt.Job.IsZero(), "a created job has an id; receipt: %+v", receipt)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if h.System.Cancel(ctx, receipt.Job, who) == nil {
			h.until(t, "the job of a finished test to go away", func() bool {
				a, err := h.System.Observe(ctx, []scheduler.JobID{receipt.Job})
				if err != nil || a.Unanswered[receipt.Job] != nil {
					return false
				}
				o, known := a.Known[receipt.Job]
				return !known || o.Phase.Terminal()
			})
		}
	})
	return receipt.Job, who
}

// observe looks at one job, which has to be known.
func (h Harness) observe(t *testing.T, id scheduler.JobID) scheduler.Observation {
	t.Helper()
	a, err := h.System.Observe(t.Context(), []scheduler.JobID{id})
	require.NoError(t, err)
	require.Empty(t, a.Unanswered)
	o, known := a.Known[id]
	require.True(t, known, "job %s is not known; answer: %+v", id, a)
	return o
}

// running waits until a job runs.
func (h Harness) running(t *testing.T, id scheduler.JobID) scheduler.Observation {
	t.Helper()
	var o scheduler.Observation
	h.until(t, "job "+id.String()+" to run", func() bool {
		o = h.observe(t, id)
		require.False(t, o.Phase.Terminal(), "the job was to run on and is over: %+v", o)
		return o.Phase == scheduler.Granted
	})
	return o
}

// over waits for a job's end and checks that it came to it by ways that are allowed.
func (h Harness) over(t *testing.T, id scheduler.JobID) scheduler.Observation {
	t.Helper()
	var o scheduler.Observation
	h.until(t, "job "+id.String()+" to end", func() bool {
		o = h.observe(t, id)
		if !o.Phase.Terminal() {
			require.Contains(t, []scheduler.Phase{scheduler.Pending, scheduler.Granted, scheduler.Releasing}, o.Phase, "observation: %+v", o)
			require.Nil(t, o.ExitCode, "a live job has no exit code: %+v", o)
		}
		return o.Phase.Terminal()
	})
	require.NotEmpty(t, o.Verbatim, "the scheduler's own word is kept: %+v", o)
	return o
}

// until waits for a condition, with a bound and without sleeping.
func (h Harness) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	patience, every := h.Patience, h.Every
	if patience == 0 {
		patience = time.Minute
	}
	if every == 0 {
		every = 20 * time.Millisecond
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(every)
	defer look.Stop()
	for !holds() {
		if h.Advance != nil {
			h.Advance()
		}
		select {
		case <-look.C:
		case <-deadline.C:
			require.FailNow(t, "waited "+patience.String()+" for "+what)
		}
	}
}
