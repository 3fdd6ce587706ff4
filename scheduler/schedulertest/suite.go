package schedulertest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// Run holds a System to the contract of scheduler.System.
func Run(t *testing.T, h Harness) {
	t.Run("ends", h.ends)
	t.Run("cancel", h.cancels)
	t.Run("find", h.finds)
	t.Run("observe", h.observes)
	t.Run("submit", h.submits)
}

// ends follows jobs to the ends they can come to by themselves.
func (h Harness) ends(t *testing.T) {
	t.Run("success", func(t *testing.T) {
		name := newName()
		id, _ := h.submit(t, Job{Name: name})
		o := h.over(t, id)
		require.Equal(t, scheduler.Completed, o.Phase, "observation: %+v", o)
		require.Empty(t, o.Reason)
		require.NotNil(t, o.ExitCode, "observation: %+v", o)
		require.Zero(t, *o.ExitCode)
		require.Zero(t, o.ExitSignal)
		require.Equal(t, name, o.Name)
	})
	t.Run("exit code 3", func(t *testing.T) {
		id, _ := h.submit(t, Job{Exit: 3})
		o := h.over(t, id)
		require.Equal(t, scheduler.Failed, o.Phase, "observation: %+v", o)
		require.Equal(t, scheduler.CommandFailed, o.Reason)
		require.NotNil(t, o.ExitCode, "observation: %+v", o)
		require.Equal(t, 3, *o.ExitCode)
	})
	t.Run("signal 9", func(t *testing.T) {
		id, _ := h.submit(t, Job{Signal: 9})
		o := h.over(t, id)
		require.Equal(t, scheduler.Failed, o.Phase, "observation: %+v", o)
		// Some schedulers tell the signal, some only the code that a shell would make of it.
		if o.ExitSignal == 0 {
			require.NotNil(t, o.ExitCode, "observation: %+v", o)
			require.Equal(t, 128+9, *o.ExitCode)
		} else {
			require.Equal(t, 9, o.ExitSignal)
		}
	})
	if h.Walltime > 0 {
		t.Run("walltime", func(t *testing.T) {
			id, _ := h.submit(t, Job{Forever: true, Walltime: h.Walltime})
			o := h.over(t, id)
			require.Equal(t, scheduler.Failed, o.Phase, "observation: %+v", o)
			require.Equal(t, scheduler.TimeLimitExceeded, o.Reason)
		})
	}
}

// cancels holds Cancel to ending the job that is meant, and no other.
func (h Harness) cancels(t *testing.T) {
	t.Run("while it runs", func(t *testing.T) {
		id, who := h.submit(t, Job{Forever: true})
		h.running(t, id)
		require.NoError(t, h.System.Cancel(t.Context(), id, who))
		o := h.over(t, id)
		require.Equal(t, scheduler.Cancelled, o.Phase, "observation: %+v", o)
		require.Equal(t, scheduler.UserCancelled, o.Reason)
		require.ErrorIs(t, h.System.Cancel(t.Context(), id, who), scheduler.ErrNoSuchJob, "it is over")
	})
	t.Run("twice", func(t *testing.T) {
		id, who := h.submit(t, Job{Forever: true})
		h.running(t, id)
		require.NoError(t, h.System.Cancel(t.Context(), id, who))
		if err := h.System.Cancel(t.Context(), id, who); err != nil {
			require.ErrorIs(t, err, scheduler.ErrNoSuchJob)
		}
		require.Equal(t, scheduler.Cancelled, h.over(t, id).Phase)
	})
	t.Run("not ours", func(t *testing.T) {
		id, who := h.submit(t, Job{Forever: true})
		h.running(t, id)
		otherName, otherUser := who, who
		otherName.Name = newName()
		otherUser.UID++
		otherUser.User = "somebody_else"
		for what, wrong := range map[string]scheduler.Identity{"name": otherName, "user": otherUser} {
			require.ErrorIs(t, h.System.Cancel(t.Context(), id, wrong), scheduler.ErrNotOurs, "another %s", what)
		}
		require.Equal(t, scheduler.Granted, h.observe(t, id).Phase, "the job goes on")
	})
	t.Run("unknown id", func(t *testing.T) {
		require.ErrorIs(t, h.System.Cancel(t.Context(), h.Unknown, h.Identity(newName())), scheduler.ErrNoSuchJob)
	})
	t.Run("finished job", func(t *testing.T) {
		id, who := h.submit(t, Job{})
		h.over(t, id)
		require.ErrorIs(t, h.System.Cancel(t.Context(), id, who), scheduler.ErrNoSuchJob)
		require.Equal(t, scheduler.Completed, h.observe(t, id).Phase, "its end stays what it was")
	})
}

// finds holds Find to a job's name and owner.
func (h Harness) finds(t *testing.T) {
	t.Run("live and finished", func(t *testing.T) {
		id, who := h.submit(t, Job{Forever: true})
		h.find(t, who, id)
		h.running(t, id)
		h.find(t, who, id)
		require.NoError(t, h.System.Cancel(t.Context(), id, who))
		h.over(t, id)
		h.find(t, who, id)
	})
	t.Run("two of one name", func(t *testing.T) {
		name := newName()
		first, who := h.submit(t, Job{Name: name, Forever: true})
		second, _ := h.submit(t, Job{Name: name, Forever: true})
		require.NotEqual(t, first, second)
		found, err := h.System.Find(t.Context(), who)
		require.NoError(t, err)
		require.ElementsMatch(t, []scheduler.JobID{first, second}, found)
	})
	t.Run("unknown name", func(t *testing.T) {
		found, err := h.System.Find(t.Context(), h.Identity(newName()))
		require.NoError(t, err)
		require.Empty(t, found)
	})
	t.Run("beginning of a name", func(t *testing.T) {
		_, who := h.submit(t, Job{Forever: true})
		who.Name = who.Name[:len(who.Name)-1]
		found, err := h.System.Find(t.Context(), who)
		require.NoError(t, err)
		require.Empty(t, found)
	})
	t.Run("no time to ask", func(t *testing.T) {
		_, err := h.System.Find(expired(t), h.Identity(newName()))
		require.Error(t, err, "what wasn't asked isn't known to be absent")
	})
}

// find looks for exactly one job.
func (h Harness) find(t *testing.T, who scheduler.Identity, id scheduler.JobID) {
	t.Helper()
	found, err := h.System.Find(t.Context(), who)
	require.NoError(t, err)
	require.Equal(t, []scheduler.JobID{id}, found)
}

// observes holds Observe to the difference between what is there, what is absent and what could not be asked.
func (h Harness) observes(t *testing.T) {
	t.Run("running", func(t *testing.T) {
		id, who := h.submit(t, Job{Forever: true})
		o := h.running(t, id)
		require.Equal(t, who.Name, o.Name)
		require.Len(t, o.Hosts, 1, "observation: %+v", o)
		require.Empty(t, o.Reason)
		require.True(t, o.EndTime.IsZero() || o.EndTime.After(o.StartTime), "observation: %+v", o)
	})
	t.Run("unknown beside known", func(t *testing.T) {
		live, _ := h.submit(t, Job{Forever: true})
		done, _ := h.submit(t, Job{})
		h.over(t, done)
		a, err := h.System.Observe(t.Context(), []scheduler.JobID{live, h.Unknown, done})
		require.NoError(t, err)
		require.Empty(t, a.Unanswered)
		require.Contains(t, a.Known, live)
		require.Contains(t, a.Known, done)
		require.NotContains(t, a.Known, h.Unknown)
		require.Len(t, a.Known, 2)
	})
	t.Run("unknown alone", func(t *testing.T) {
		a, err := h.System.Observe(t.Context(), []scheduler.JobID{h.Unknown})
		require.NoError(t, err)
		require.Empty(t, a.Known)
		require.Empty(t, a.Unanswered)
	})
	t.Run("nothing asked", func(t *testing.T) {
		a, err := h.System.Observe(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, a.Known)
	})
	t.Run("no time to ask", func(t *testing.T) {
		id, _ := h.submit(t, Job{Forever: true})
		a, err := h.System.Observe(expired(t), []scheduler.JobID{id})
		if err == nil {
			require.Contains(t, a.Unanswered, id, "what wasn't asked isn't known to be absent")
		}
	})
}

// submits holds Submit to its outcomes.
func (h Harness) submits(t *testing.T) {
	if h.Rejected != nil {
		t.Run("rejected", func(t *testing.T) {
			sub := h.Rejected(t)
			receipt, err := h.System.Submit(t.Context(), sub)
			require.NoError(t, err)
			require.Equal(t, scheduler.Rejected, receipt.Outcome, "receipt: %+v", receipt)
			require.True(t, receipt.Job.IsZero())
			require.NotEmpty(t, receipt.Reason)
			require.NotEmpty(t, receipt.Text, "the scheduler's words are shown")
			found, err := h.System.Find(t.Context(), h.Identity(sub.Name))
			require.NoError(t, err)
			require.Empty(t, found, "nothing is left of it")
		})
	}
	t.Run("facts", func(t *testing.T) {
		facts, err := h.System.Facts(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, facts.KillDelay, time.Duration(0))
		require.GreaterOrEqual(t, facts.MinJobAge, time.Duration(0))
	})
}

// expired is a context that has ended.
func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
