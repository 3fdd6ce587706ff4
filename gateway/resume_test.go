package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/scheduler"
)

// patient leaves silent ranks alone, so that a clock that jumps means one thing.
func patient(c *Config) { c.RankLostAfter = 24 * time.Hour }

var job7 = scheduler.JobID{ID: "7"}

// say has the scheduler say something of the workload's job.
func (w *workload) say(o scheduler.Observation) { w.observed(w.rec.current().Job, o) }

// start reads a rank's start order.
func (c *client) start() wire.StartOrder {
	c.t.Helper()
	var o wire.StartOrder
	c.until(wire.Start, &o)
	return o
}

// done reads the last order.
func (c *client) done() wire.StopOrder {
	c.t.Helper()
	for {
		var o wire.StopOrder
		if c.until(wire.Stop, &o); o.Done {
			return o
		}
	}
}

// resume comes back with the credential of an answer.
func (r *rig) resume(a wire.Answer, rank int, job string) (*client, wire.Answer) {
	r.t.Helper()
	c := r.dial().hello([]byte(a.Resume), agentOf(job, string(rune('a'+rank))))
	return c, c.admitted()
}

// TestWholeLife takes two ranks from their credentials to COMPLETED.
func TestWholeLife(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	a, _ := r.join(w, 0, 0, "7")
	assert.Equal(t, scheduler.Granted, w.phase(), "the job runs, whatever was said of it")
	b, _ := r.join(w, 0, 1, "7")
	start := b.start()
	assert.Equal(t, "start-0", start.ID)
	assert.Equal(t, []string{"true"}, start.Argv)
	assert.Equal(t, map[string]string{"HF_TOKEN": "hunter2"}, start.Secrets)
	assert.Equal(t, 2, start.Size)
	assert.Equal(t, "127.0.0.1", start.MasterAddr)
	assert.Equal(t, 4711, start.MasterPort)
	assert.Equal(t, "n[1,1]", start.Hosts)
	a.start()
	assert.Equal(t, scheduler.Active, w.phase())
	assert.Equal(t, "7", w.view().Job.ID)

	a.exit(wire.ExitReport{})
	b.exit(wire.ExitReport{})
	done := b.done()
	assert.Equal(t, 0, done.ExitCode)
	assert.Equal(t, "succeeded", done.Status)
	b.conn.Close()
	assert.False(t, a.done().Fail, "rank 0 leaves last")
	a.conn.Close()
	w.say(scheduler.Observation{Phase: scheduler.Completed, ExitCode: code(0)})
	assert.Equal(t, scheduler.Completed, w.phase())
	assert.Zero(t, r.server.LiveCount())

	late := r.dial().hello(w.lines[0][0], agentOf("7", "z"))
	assert.Equal(t, refused, late.line(), "a terminal phase fences every epoch")
	_, err := r.server.unseal(w.id)
	assert.Error(t, err, "the secrets are gone")
}

func TestOneFailureStopsTheOthers(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	a, _ := r.join(w, 0, 0, "7")
	b, _ := r.join(w, 0, 1, "7")
	b.start()
	b.exit(wire.ExitReport{Code: 3})
	var stop wire.StopOrder
	a.until(wire.Stop, &stop)
	assert.False(t, stop.Done)
	assert.Equal(t, 3, stop.ExitCode)
	assert.Contains(t, stop.Reason, "rank 1 on n1 exited with 3")
	a.exit(wire.ExitReport{Signal: 15, Cause: wire.CauseOrder})
	assert.Equal(t, 3, b.done().ExitCode)
	b.conn.Close()
	done := a.done()
	assert.Equal(t, 3, done.ExitCode, "the job's exit code is the workload's")
	assert.Equal(t, "failed", done.Status)
	a.conn.Close()
	w.say(scheduler.Observation{Phase: scheduler.Failed, Reason: scheduler.CommandFailed, ExitCode: code(3)})
	v := w.view()
	assert.Equal(t, scheduler.Failed, v.Phase)
	assert.Equal(t, &api.Result{ExitCode: 3, Rank: 1, Host: "n1"}, v.Result)
}

func TestLostAnswerLosesNoRank(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	first, answer := r.join(w, 0, 0, "7")
	again, second := r.join(w, 0, 0, "7") // the same credential and attempt: its answer never arrived
	assert.NotEqual(t, answer.Generation, second.Generation)
	assert.Error(t, first.ended(), "it replaces the connection")
	r.eventually("the old one is gone", func() bool { return w.view().Ranks.Live == 1 })
	other := r.dial().hello(w.lines[0][0], agentOf("7", "other"))
	assert.Equal(t, refused, other.line())
	_, _ = r.join(w, 0, 1, "7")
	again.start()
}

func TestResumeKeepsThePlace(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	a, answer := r.join(w, 0, 0, "7")
	b, _ := r.join(w, 0, 1, "7")
	a.start()
	b.start()
	a.conn.Close()
	r.eventually("gone", func() bool { return w.view().Ranks.Live == 1 })
	assert.Equal(t, scheduler.Active, w.phase())

	back, next := r.resume(answer, 0, "7")
	assert.Equal(t, "start-0", back.start().ID, "orders that stand are given again")
	assert.Contains(t, next.Resume, "resume.2.")
	r.eventually("counted", func() bool { return r.server.counters.resumed.Load() == 1 })
	old := r.dial().hello([]byte(answer.Resume), agentOf("7", "stranger"))
	assert.Equal(t, refused, old.line())

	// A resume on a connection that still looks alive takes its place.
	twice, _ := r.resume(next, 0, "7")
	assert.Error(t, back.ended())
	twice.exit(wire.ExitReport{})
	b.exit(wire.ExitReport{})
	b.done()
}

func TestOrphanIsLostAndNamed(t *testing.T) {
	r := newRig(t, patient).serve()
	w := r.create(2)
	a, answer := r.join(w, 0, 0, "7")
	b, _ := r.join(w, 0, 1, "7")
	a.start()
	a.conn.Close()
	r.eventually("gone", func() bool { return w.view().Ranks.Live == 1 })
	r.clock.advance(16 * time.Minute)
	var stop wire.StopOrder
	b.until(wire.Stop, &stop)
	assert.Contains(t, stop.Reason, "lost rank 0 (n1)")
	assert.Equal(t, uint64(1), r.server.counters.reaped.Load())

	c := r.dial().hello([]byte(answer.Resume), agentOf("7", "a"))
	assert.Equal(t, refused, c.line(), "a rank that was given up stays out")
	b.exit(wire.ExitReport{Signal: 15, Cause: wire.CauseOrder})
	assert.True(t, b.done().Fail, "the last live rank ends the launcher")
	w.say(scheduler.Observation{Phase: scheduler.Failed, ExitCode: code(1)})
	r.eventually("over", func() bool { return w.phase() == scheduler.Failed })
	assert.Equal(t, scheduler.WorkerLost, w.view().Reason)
}

func TestRestartRecoversAGang(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(3)
	var ranks [3]*client
	var answers [3]wire.Answer
	for i := range ranks {
		ranks[i], answers[i] = r.join(w, 0, i, "7")
	}
	for _, c := range ranks {
		c.start()
	}
	ranks[2].exit(wire.ExitReport{})

	r.restart()
	w = r.again(w)
	assert.Equal(t, scheduler.Active, w.phase())
	assert.Equal(t, "1 of 3 ranks; missing 0-1; 1 ended", w.view().Ranks.Text)
	for i := range 2 {
		ranks[i], answers[i] = r.resume(answers[i], i, "7")
		assert.Equal(t, "start-0", ranks[i].start().ID)
		ranks[i].exit(wire.ExitReport{})
	}
	ranks[1].done()
	w.say(scheduler.Observation{Phase: scheduler.Completed, ExitCode: code(0)})
	r.eventually("completed", func() bool { return w.phase() == scheduler.Completed })

	// The rank that ended before the restart, and never heard that all is over, is refused by now.
	c := r.dial().hello([]byte(answers[2].Resume), agentOf("7", "c"))
	assert.Equal(t, refused, c.line())
}

func TestRestartKeepsWhatWasDecided(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	a, _ := r.join(w, 0, 0, "7")
	b, ab := r.join(w, 0, 1, "7")
	a.start()
	a.exit(wire.ExitReport{Code: 5})
	var stop wire.StopOrder
	b.until(wire.Stop, &stop)

	r.restart()
	w = r.again(w)
	b, _ = r.resume(ab, 1, "7")
	b.until(wire.Stop, &stop)
	assert.Equal(t, 5, stop.ExitCode)
	b.exit(wire.ExitReport{Code: 9})
	assert.Equal(t, 5, b.done().ExitCode, "the first failure stays")
	assert.Equal(t, scheduler.CommandFailed, w.view().Reason)
}

func TestCancelBeforeReleaseSurvivesARestart(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	_, answer := r.join(w, 0, 0, "7")
	r.eventually("registered", func() bool { return w.view().Ranks.Live == 1 })
	w.cancel("user", w.uid)

	r.restart()
	w = r.again(w)
	fresh := r.dial().hello(w.lines[0][1], agentOf("7", "b"))
	assert.Equal(t, refused, fresh.line())
	c, _ := r.resume(answer, 0, "7")
	var stop wire.StopOrder
	c.until(wire.Stop, &stop)
	assert.False(t, stop.Done)
	c.exit(wire.ExitReport{Code: 143, Cause: wire.CauseOrder})
	assert.Equal(t, 20, c.done().ExitCode)
}

// A rank whose report was stored and whose acknowledgement was lost hears the end of it.
func TestLostAcknowledgementOfTheLastReport(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	a, _ := r.join(w, 0, 0, "7")
	b, ab := r.join(w, 0, 1, "7")
	a.start()
	b.start()
	b.send(wire.Exit, wire.ExitReport{Seq: 2})
	r.eventually("stored", func() bool { return w.view().Ranks.Exited == 1 })
	b.conn.Close()
	r.eventually("gone", func() bool { return w.view().Ranks.Live == 1 })
	a.exit(wire.ExitReport{})
	a.done()
	r.eventually("over", func() bool { return w.phase() == scheduler.Releasing })
	b, _ = r.resume(ab, 1, "7")
	assert.Equal(t, 0, b.done().ExitCode)
}

// Case 33: a worker of a requeued job can't join the gang of the next epoch, nor the other way round.
func TestCase33EpochsAreFenced(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(1, func(c *createBody) { c.Request.Restarts = 1 })
	old, answer := r.join(w, 0, 0, "7")
	old.start()

	early := r.dial().hello(w.lines[1][0], agentOf("7", "n"))
	assert.Empty(t, early.line(), "epoch 0 lives: closed unanswered")
	w.say(scheduler.Observation{Phase: scheduler.Granted})
	w.say(scheduler.Observation{Phase: scheduler.Pending, Requeued: true, Restarts: 1})
	assert.Equal(t, scheduler.Pending, w.phase())

	c := r.dial().hello(w.lines[1][0], agentOf("7", "n"))
	c.admitted() // unburned before
	assert.Equal(t, "start-1", c.start().ID)
	assert.Error(t, old.ended(), "every connection of the old epoch is closed")
	back := r.dial().hello([]byte(answer.Resume), agentOf("7", "a"))
	assert.Equal(t, refused, back.line())
	assert.Equal(t, int64(1), w.view().Epoch)
	assert.Contains(t, strings.Join(w.view().History, "\n"), "epoch 0 was taken back")
	require.Equal(t, int64(1), r.fence.Floor(string(w.rec.current().ID)))
}

func TestNextEpochOnceTheOldOnesConnectionsAreGone(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(1, func(c *createBody) { c.Request.Restarts = 1 })
	old, _ := r.join(w, 0, 0, "7")
	old.start()
	old.conn.Close()
	r.eventually("gone", func() bool { return w.view().Ranks.Live == 0 })
	c, _ := r.join(w, 1, 0, "7")
	c.start()
	assert.Contains(t, strings.Join(w.view().History, "\n"), "epoch 0 was replaced by epoch 1")
}

func TestDuplicateJobTakesNoPart(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	w.mu.Lock()
	w.rec.submitted(api.Submission{Outcome: scheduler.Created, Job: scheduler.JobID{ID: "6"}}, r.clock.now())
	w.mu.Unlock()
	r.join(w, 0, 0, "7")
	assert.Equal(t, "7", w.view().Job.ID)
	other := r.dial().hello(w.lines[0][1], agentOf("6", "b"))
	assert.Equal(t, refused, other.line())
	r.join(w, 0, 1, "7") // unburned: the right job still may
}

func TestRegistrationTimeoutNamesTheHost(t *testing.T) {
	r := newRig(t, patient).serve()
	w := r.create(3)
	w.mu.Lock()
	w.rec.submitted(api.Submission{Outcome: scheduler.Created, Job: job7}, r.clock.now())
	w.mu.Unlock()
	w.say(scheduler.Observation{Phase: scheduler.Granted, Hosts: []string{"n1", "n2", "n3"}})
	a, _ := r.join(w, 0, 0, "7")
	b, _ := r.join(w, 0, 2, "7")
	assert.Equal(t, "2 of 3 ranks; missing 1 (n2)", w.view().Ranks.Text)
	r.clock.advance(10*time.Minute + time.Second)
	for _, c := range []*client{b, a} {
		var stop wire.StopOrder
		c.until(wire.Stop, &stop)
		assert.Contains(t, stop.Reason, "1 of 3 ranks never came within 10m0s of the first: 1 (n2)")
		c.exit(wire.ExitReport{Code: 143, Cause: wire.CauseOrder})
	}
	b.done()
	b.conn.Close()
	assert.True(t, a.done().Fail)
	w.say(scheduler.Observation{Phase: scheduler.Failed, Reason: scheduler.CommandFailed, ExitCode: code(1)})
	assert.Equal(t, scheduler.WorkerRegistrationTimeout, w.view().Reason)
}

// A workload whose end could not be stored is stored, fenced and forgotten later.
func TestEndThatCouldNotBeStored(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(1)
	w.edit(func(rec *record) { rec.end(scheduler.Failed, scheduler.StateLost, "", r.clock.now()) }) // and no save
	r.eventually("retired", func() bool { return r.server.LiveCount() == 0 })
	assert.Equal(t, fencedForever, r.fence.Floor(string(w.rec.current().ID)))
}
