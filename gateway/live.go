package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/scheduler"
)

// live is a workload that is not over: its record, the gang of its current epoch and the connections of that gang.
// Everything is under mu.
type live struct {
	srv *Server
	uid int // owner
	// credentials of its current allocation; the next one has as many.
	credentials int

	mu        sync.Mutex
	rec       *record
	gang      *gang.Gang
	peers     map[int]*peer
	start     *api.Start // unsealed once it is needed
	hosts     string     // the nodes' names, compressed once for all ranks
	logs      *logs
	progress  map[int]wire.ProgressReport
	next      time.Time // when the gang's clocks have something to do
	stored    uint64    // record version in the store
	lastDone  time.Time // when the last rank is told to leave although others are still connected
	overSince time.Time // when every rank was accounted for
	dismissed bool      // the last rank was told to leave
	killed    time.Time // when the job was last ordered to end
	retired   bool
	retiredAt time.Time
	changed   chan struct{}
}

func (s *Server) newLive(r *record) *live {
	l := &live{srv: s, uid: r.UID, credentials: credentialsOf(r.Request), rec: r, peers: map[int]*peer{}, logs: newLogs(s.logBytes, r.Request.Size()), changed: make(chan struct{}), stored: r.Version}
	l.gang = gang.New(r.Request.Size(), l.limits())
	return l
}

// grace is what every rank gets between TERM and KILL: the job's own, but less than the scheduler gives.
func (l *live) grace() time.Duration {
	g := l.rec.Request.Signal.Grace
	if kill := l.srv.facts().KillDelay; kill > 0 {
		g = min(g, max(kill-5*time.Second, time.Second))
	}
	return g
}

func (l *live) limits() gang.Limits {
	c := l.srv.cfg
	return gang.Limits{
		Timeout: l.rec.Request.GangTimeout, SilentAfter: 3 * heartbeat, LostAfter: c.RankLostAfter,
		OrphanTTL: c.OrphanTTL, Drain: l.rec.Request.Signal.Grace + 30*time.Second,
	}
}

// save stores the record if it changed and wakes whoever watches. A failed write keeps the change in memory, where
// the next save takes it along.
func (l *live) save() {
	if l.rec.Version == l.stored {
		return
	}
	if err := l.srv.store.put(l.rec); err != nil {
		l.srv.log.Error().Err(err).Str("workload", string(l.rec.ID)).Msg("a workload could not be stored; it is tried again")
	} else {
		l.stored = l.rec.Version
	}
	l.wake()
}

func (l *live) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// judge is asked about every credential whose signature is right. It burns nothing and closes nothing.
func (l *live) judge(c credential.Claim, agent *wire.Agent) (credential.Scope, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.rec.allocation(scheduler.AllocationID(c.Allocation))
	scope := credential.Scope{Size: l.rec.Request.Size()}
	switch {
	case a == nil || l.rec.Phase.Terminal():
		return scope, &credential.Refusal{Cause: credential.CauseStaleEpoch}
	case !a.holds(c.Epoch):
		return scope, &credential.Refusal{Cause: causeEpochRange}
	case c.Epoch < l.rec.Epoch || a != l.rec.current():
		return scope, &credential.Refusal{Cause: credential.CauseStaleEpoch}
	case c.Epoch == l.rec.Epoch && l.barred() && !c.IsResume():
		return scope, &credential.Refusal{Cause: causeFenced}
	case c.Epoch == l.rec.Epoch && c.Rank < l.gang.Size() && l.gang.IsLost(c.Rank):
		return scope, &credential.Refusal{Cause: causeFenced}
	case c.Epoch > l.rec.Epoch && l.rec.Cancel != "":
		return scope, &credential.Refusal{Cause: causeFenced}
	case c.Epoch > l.rec.Epoch && len(l.peers) > 0 && !l.rec.Requeued:
		return scope, errUndecided
	}
	if agent != nil && !l.rec.bind(a, agent.Job) {
		return scope, &credential.Refusal{Cause: causeOtherJob}
	}
	l.save()
	return scope, nil
}

// barred: the gang is being ended; only ranks that are in it may come back.
func (l *live) barred() bool { return l.rec.Cancel != "" || l.rec.Outcome != nil || l.rec.Lease != "" }

// register takes an admitted connection into the gang. False: it must be closed.
func (l *live) register(p *peer, replace bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.srv.now()
	if l.rec.Phase.Terminal() || p.epoch < l.rec.Epoch {
		return false
	}
	if p.epoch > l.rec.Epoch {
		l.advance(p.epoch, now)
	}
	m := gang.Member{NodeRank: p.rank / max(l.rec.Request.RanksPerNode, 1), Quiet: p.agent == nil}
	if p.agent != nil {
		m.Host, m.Address, m.FreePort = clean(p.agent.Host), clean(p.agent.Address), p.agent.FreePort
	}
	ok, events := l.gang.Join(p.rank, m, replace, now)
	if !ok {
		return false
	}
	if old := l.peers[p.rank]; old != nil {
		old.close()
	}
	l.peers[p.rank] = p
	l.rec.granted()
	l.next = time.Time{}
	l.act(events, now)
	l.greet(p)
	l.save()
	l.wake()
	return true
}

// advance begins the gang of a newer epoch and closes every connection of the old one.
func (l *live) advance(epoch int64, now time.Time) {
	l.rec.advance(epoch, now)
	l.clear()
	for _, a := range l.rec.Attempts {
		if err := l.srv.fence.Raise(l.srv.background, string(a.ID), epoch); err != nil {
			l.srv.log.Error().Err(err).Str("workload", string(l.rec.ID)).Msg("the fence could not be raised")
		}
	}
	l.srv.audit.decision("epoch", l.rec.UID, string(l.rec.ID), fmt.Sprintf("epoch %d begins", epoch))
}

// clear puts an empty gang in the place of an old one, whose connections it closes.
func (l *live) clear() {
	for _, p := range l.peers {
		p.close()
	}
	l.peers = map[int]*peer{}
	l.gang = gang.New(l.rec.Request.Size(), l.limits())
	l.progress, l.hosts = nil, ""
	l.lastDone, l.overSince, l.dismissed, l.next = time.Time{}, time.Time{}, false, time.Time{}
}

// afresh forgets a lost job before a new allocation.
func (l *live) afresh() {
	l.rec.forgetJob()
	l.clear()
}

// greet gives a rank that (re)joined the orders that stand. They are idempotent.
func (l *live) greet(p *peer) {
	if p.agent == nil {
		return
	}
	switch {
	case l.gang.State() == gang.Done && l.gang.HasExited(p.rank):
		l.leave(p, false)
	case l.gang.Outcome() != nil || l.rec.Cancel != "":
		p.order(wire.Stop, l.stopOrder())
	case l.gang.WasReleased() && !l.gang.HasExited(p.rank):
		l.sendStart(p)
	}
}

// act carries out what the gang says. It may add events of its own.
func (l *live) act(events []gang.Event, now time.Time) {
	for _, e := range events {
		switch e.Kind {
		case gang.BecameReady:
			l.release(now)
		case gang.StopRanks:
			l.overview(now)
			for _, p := range l.peers {
				if !l.gang.HasExited(p.rank) {
					p.order(wire.Stop, l.stopOrder())
				}
			}
		case gang.LoseRank:
			if p := l.peers[e.Rank]; p != nil {
				p.close()
				delete(l.peers, e.Rank)
			}
			l.srv.counters.reaped.Add(1)
		case gang.Finished:
			l.overview(now)
			l.dismiss(now)
		}
	}
	l.next = l.gang.Next()
}

// overview writes the gang's outcome into the record.
func (l *live) overview(now time.Time) {
	if o := l.gang.Outcome(); o != nil {
		l.rec.gangOver(*o, l.gang.State() == gang.Done, l.gang.Termed())
		l.save()
	}
}

// gone says that a connection died.
func (l *live) gone(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers[p.rank] != p {
		return
	}
	delete(l.peers, p.rank)
	now := l.srv.now()
	l.act(l.gang.Gone(p.rank, now), now)
	l.dismissLast(now)
	l.settle(now)
	l.wake()
}

// heard notes that a rank is alive.
func (l *live) heard(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers[p.rank] == p {
		l.gang.Heard(p.rank, l.srv.now())
	}
}

// exited takes a report that is stored already.
func (l *live) exited(epoch int64, rank int, e gang.Exit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.rec.Epoch || rank < 0 || rank >= l.gang.Size() {
		return
	}
	now := l.srv.now()
	late := l.gang.State() == gang.Done
	l.act(l.gang.Exited(rank, e, now), now)
	if p := l.peers[rank]; late && p != nil {
		l.leave(p, false) // it came back after the others were told
	}
	l.settle(now)
	l.wake()
}

// settle decides the terminal phase if it can be decided, stores and cleans up.
func (l *live) settle(now time.Time) {
	if l.rec.Ending != nil && !l.rec.Phase.Terminal() {
		if l.rec.Release != nil {
			l.rec.Unreported = l.gang.Unreported()
		} else {
			l.rec.NeverCame = l.gang.NeverCame()
		}
	}
	l.rec.conclude(len(l.peers) > 0, l.srv.cfg.AbsenceDeadline, now)
	if l.rec.Resubmit && len(l.peers) > 0 {
		for _, p := range l.peers {
			p.close()
		}
	}
	l.save()
	if l.rec.Phase.Terminal() {
		l.srv.retire(l)
	}
}

// tick looks at the gang's clocks and at what waits for time to pass.
func (l *live) tick(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Phase.Terminal() { // an earlier write failed
		l.save()
		l.srv.retire(l)
		return
	}
	if l.next.IsZero() || !now.Before(l.next) {
		l.act(l.gang.Tick(now), now)
	}
	l.dismissLast(now)
	l.settle(now)
}

// view is what is shown of the workload.
func (l *live) view() api.Workload {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.viewLocked()
}

// maxMissing bounds how many missing ranks a view lists.
const maxMissing = 64

func (l *live) viewLocked() api.Workload {
	now := l.srv.now()
	w := l.rec.view()
	w.Wants = l.wants(now)
	w.Ranks.Live, w.Ranks.Exited = l.gang.Live(), l.gang.ExitedCount()
	w.Ranks.Text = l.gang.Text(now, l.rec.hostOf)
	w.Ranks.Missing = l.gang.Missing()
	if len(w.Ranks.Missing) > maxMissing {
		w.Ranks.Missing = w.Ranks.Missing[:maxMissing]
	}
	for _, r := range w.Ranks.Missing {
		w.Ranks.Hosts = append(w.Ranks.Hosts, l.rec.hostOf(r))
	}
	w.Ranks.Silent = l.gang.Silent(now)
	if len(l.progress) > 0 {
		least := slices.MinFunc(slices.Collect(valuesOf(l.progress)), func(a, b wire.ProgressReport) int { return cmp.Compare(a.Fraction, b.Fraction) })
		if len(l.progress) < l.gang.Size() && least.Fraction == 1 {
			least.Fraction = float64(len(l.progress)) / float64(l.gang.Size())
		}
		w.Progress = &api.Progress{Fraction: least.Fraction, Phase: least.Phase}
	}
	return w
}

// valuesOf is a map's values as a sequence.
func valuesOf[K comparable, V any](m map[K]V) func(func(V) bool) {
	return func(yield func(V) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}
