package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// Live implements scheduler.Tracked: the jobs that this process is shown.
func (s *Server) Live() []scheduler.JobID {
	var ids []scheduler.JobID
	for _, l := range s.all() {
		l.mu.Lock()
		if job := l.rec.current().Job; !job.IsZero() && l.rec.Ending == nil && !l.rec.Resubmit && s.sees(l.rec.UID) {
			ids = append(ids, job)
		}
		l.mu.Unlock()
	}
	return ids
}

// Observed implements scheduler.Tracked: one tick's answers. A job that was not asked for, or got no answer, is in
// neither.
func (s *Server) Observed(known map[scheduler.JobID]scheduler.Observation, absent []scheduler.JobID) {
	gone := make(map[scheduler.JobID]bool, len(absent))
	for _, id := range absent {
		gone[id] = true
	}
	s.forAll(func(l *live) {
		l.mu.Lock()
		job := l.rec.current().Job
		l.mu.Unlock()
		if o, ok := known[job]; ok {
			l.observed(job, o)
		} else if gone[job] {
			l.absent(job)
		}
	})
}

// Ticked implements scheduler.Tracked: how the last tick went.
func (s *Server) Ticked(err error) { s.observed.Store(&tickResult{at: s.now(), err: err}) }

// FactsRead takes what the scheduler's configuration says. A queue that forgets jobs faster than they are looked at
// is told to the log once.
func (s *Server) FactsRead(f scheduler.Facts) {
	before := s.seen.Swap(&f)
	if f.MinJobAge <= 0 || f.MinJobAge >= 2*s.cfg.Poll || before != nil && before.MinJobAge == f.MinJobAge {
		return
	}
	text := "jobs leave the scheduler's queue between two looks; accounting tells their end"
	if !f.Accounting {
		text = "jobs leave the scheduler's queue between two looks and nothing else tells their end: those whose ranks report nothing end as LOST"
	}
	s.log.Warn().Dur("min_job_age", f.MinJobAge).Dur("poll", s.cfg.Poll).Str("remedy", "keep finished jobs in the queue longer (MinJobAge, job_history_duration)").Msg(text)
}

// observed takes one observation of the workload's job.
func (l *live) observed(job scheduler.JobID, o scheduler.Observation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.current().Job != job {
		return // another allocation by now
	}
	if o.Name != "" && o.Name != l.rec.current().JobName {
		return // a recycled id: it says nothing of our job
	}
	now := l.srv.now()
	l.rec.observed(cleaned(o), now)
	l.jobOver(now)
	l.settle(now)
}

// jobOver: ranks of a job that is over don't come back, so the clocks of those that are gone have nothing to say. What
// they reported, or left in RUN, decides.
func (l *live) jobOver(now time.Time) {
	l.gang.Suspended(l.rec.Seen.Suspended || l.rec.Ending != nil, now)
	l.next = time.Time{}
}

// absent notes that neither queue nor accounting knows the job.
func (l *live) absent(job scheduler.JobID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.current().Job != job || l.rec.Phase.Terminal() {
		return
	}
	now := l.srv.now()
	if l.rec.Absent.IsZero() {
		l.rec.Absent = now
		l.rec.touch()
	}
	l.settle(now)
}

func cleaned(o scheduler.Observation) scheduler.Observation {
	o.Verbatim, o.Message, o.FailedNode = clean(o.Verbatim), clean(o.Message), clean(o.FailedNode)
	for i, h := range o.Hosts {
		o.Hosts[i] = clean(h)
	}
	return o
}

// reported takes what the owner's CLI saw of the scheduler and of RUN.
func (l *live) reported(rep api.ObservationReport) error {
	l.mu.Lock()
	job, epoch, size, run := l.rec.current().Job, l.rec.Epoch, l.gang.Size(), rep.RunRead
	l.mu.Unlock()
	if rep.Observation != nil {
		l.observed(job, *rep.Observation)
	} else if rep.Absent {
		l.absent(job)
	}
	for _, e := range rep.Exits {
		if e.Epoch != epoch || e.Rank < 0 || e.Rank >= size || !plausible(e.Code, e.Signal) {
			continue
		}
		exit := gang.Exit{Code: e.Code, Signal: e.Signal, By: gang.ExitBy(e.Cause)}
		if err := l.srv.store.putExit(l.rec.ID, epoch, e.Rank, exit); err != nil {
			return err
		}
		l.exited(epoch, e.Rank, exit)
	}
	if run {
		l.runRead(epoch)
	}
	return nil
}

// runRead notes that RUN was read after the job's end: ranks without a report will never make one.
func (l *live) runRead(epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Ending == nil || l.rec.Epoch != epoch || l.rec.Phase.Terminal() || len(l.peers) > 0 {
		return
	}
	l.rec.RunRead = true
	l.rec.touch()
	l.settle(l.srv.now())
}

// mayCancel tells whether this process may end jobs of uid.
func (s *Server) mayCancel(uid int) bool {
	return s.jobs != nil && (s.cfg.UID == uid || s.cfg.Cancel || s.cfg.UID == 0)
}

const (
	// cancelEvery is how long a cancelled job is given to be seen ending before it is cancelled again.
	cancelEvery = 15 * time.Second
	// cancelsAtOnce bounds the commands that cancel jobs: a controller that has much to do isn't given more.
	cancelsAtOnce = 8
)

// endJobs cancels the jobs of workloads that are over or cancelled, where this process may.
func (s *Server) endJobs(ctx context.Context, now time.Time) {
	for _, l := range s.all() {
		l.mu.Lock()
		job, who := l.rec.current().Job, l.rec.identity()
		due := !job.IsZero() && l.rec.Ending == nil && s.mayCancel(l.rec.UID) && l.wantsJobGone(now) && now.After(l.killed.Add(cancelEvery))
		started := due && s.cancels.TryGo(func() error { s.endJob(ctx, l, job, who); return nil })
		if started {
			l.killed = now
		}
		l.mu.Unlock()
		if due && !started {
			return // the next tick goes on
		}
	}
}

func (s *Server) endJob(ctx context.Context, l *live, job scheduler.JobID, who scheduler.Identity) {
	err := s.jobs.Cancel(ctx, job, who)
	switch {
	case err == nil, errors.Is(err, scheduler.ErrNoSuchJob):
		s.audit.decision("job cancelled", who.UID, string(l.rec.ID), job.String())
	case ctx.Err() != nil:
		return
	default:
		s.log.Warn().Err(err).Str("workload", string(l.rec.ID)).Str("job", job.String()).Msg("a job could not be cancelled; it is tried again")
	}
	s.poke()
}
