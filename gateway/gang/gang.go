// Package gang is the state machine of one gang: all ranks of one (workload, epoch). It is pure: every input carries
// the time, and there is no clock, goroutine or lock inside. Inputs return events for the caller to act on.
package gang

import (
	"slices"
	"time"
)

// State of a gang.
type State int

// The states. Failed and Done are final.
const (
	Forming  State = iota // counting ranks
	Ready                 // all there, not released yet
	Released              // start orders are out
	Stopping              // ranks are being ended, or have ended and are awaited
	Done                  // every rank is accounted for
)

func (s State) String() string {
	return [...]string{"forming", "ready", "released", "stopping", "done"}[s]
}

// Limits of a gang; none may be zero.
type Limits struct {
	Timeout     time.Duration // from the first registration to the last
	SilentAfter time.Duration // without a word: shown as silent
	LostAfter   time.Duration // silent on an open connection
	OrphanTTL   time.Duration // connection dead and not resumed
	Drain       time.Duration // from the order to stop until ranks that did not report are given up
}

// Member is what a rank said of itself when it registered.
type Member struct {
	Host     string
	Address  string
	NodeRank int
	FreePort int
	Quiet    bool // it sends no heartbeats, so that its silence says nothing
}

// Event is what the caller has to do.
type Event struct {
	Kind Kind
	Rank int // of LoseRank
}

// Kind of an event.
type Kind int

// The events.
const (
	BecameReady Kind = iota // all ranks are live: release
	StopRanks               // order every live rank that has not ended to stop; Outcome says why
	LoseRank                // the rank is lost: close its connection
	Finished                // every rank is accounted for: give the last orders
)

type rank struct {
	member Member
	seen   bool      // registered at least once
	live   bool      // has a connection
	heard  time.Time // last word
	goneAt time.Time // when its connection died
	exit   *Exit
	lost   bool
}

// Gang of one (workload, epoch).
type Gang struct {
	limits    Limits
	state     State
	ranks     []rank
	live      int
	exited    int
	first     time.Time // first registration
	stopAt    time.Time // when StopRanks was given
	suspended bool
	released  bool
	stoppedBy bool // StopRanks was given
	termed    bool // a rank was ended by the scheduler
	outcome   *Outcome
}

// New returns a forming gang of size ranks.
func New(size int, l Limits) *Gang {
	return &Gang{limits: l, ranks: make([]rank, size)}
}

// State of the gang.
func (g *Gang) State() State { return g.state }

// Size in ranks.
func (g *Gang) Size() int { return len(g.ranks) }

// Live is the number of ranks with a connection.
func (g *Gang) Live() int { return g.live }

// Away says that nobody watched for that long until now: whoever would have been heard, or would have come, wasn't. No
// clock counts that time.
func (g *Gang) Away(gap time.Duration, now time.Time) {
	later := func(t *time.Time) {
		switch shifted := t.Add(gap); {
		case t.IsZero():
		case shifted.After(now): // it began meanwhile
			*t = now
		default:
			*t = shifted
		}
	}
	later(&g.first)
	later(&g.stopAt)
	for i := range g.ranks {
		later(&g.ranks[i].heard)
		later(&g.ranks[i].goneAt)
	}
}

// ExitedCount is the number of ranks that reported their end.
func (g *Gang) ExitedCount() int { return g.exited }

// Outcome is nil until it is decided. It never changes after that.
func (g *Gang) Outcome() *Outcome { return g.outcome }

// Member of a rank; zero for one that never came.
func (g *Gang) Member(r int) Member { return g.ranks[r].member }

// Termed tells whether a rank was ended by the scheduler.
func (g *Gang) Termed() bool { return g.termed }

// WasReleased tells whether start orders were ever given out.
func (g *Gang) WasReleased() bool { return g.released }

// IsLost tells whether the rank was given up.
func (g *Gang) IsLost(r int) bool { return g.ranks[r].lost }

// HasExited tells whether the rank reported its end.
func (g *Gang) HasExited(r int) bool { return g.ranks[r].exit != nil }

// IsLive tells whether the rank has a connection.
func (g *Gang) IsLive(r int) bool { return g.ranks[r].live }

// Join registers a rank's connection. It returns false, and changes nothing, for a second registration of a live
// rank that doesn't replace the first (resume or repeated answer), for a rank that was given up, and for one that comes
// for the first time after the release. A gang that is over takes a rank back to tell it so, and for nothing else.
func (g *Gang) Join(r int, m Member, replace bool, now time.Time) (bool, []Event) {
	p := &g.ranks[r]
	if p.lost || p.live && !replace {
		return false, nil
	}
	if (g.state == Released || g.state == Stopping) && !p.seen {
		return false, nil
	}
	if g.first.IsZero() {
		g.first = now
	}
	if !p.live {
		g.live++
	}
	p.seen, p.live, p.heard, p.goneAt = true, true, now, time.Time{}
	if g.state <= Ready || m.FreePort != 0 {
		p.member = m
	}
	if g.state == Forming && g.live == len(g.ranks) && g.exited == 0 {
		g.state = Ready
		return true, []Event{{Kind: BecameReady}}
	}
	return true, nil
}

// Release marks that the start orders are given out. It is only right in Ready.
func (g *Gang) Release(now time.Time) {
	if g.state != Ready {
		return
	}
	g.state, g.released = Released, true
	for i := range g.ranks {
		g.ranks[i].heard = now
	}
}

// Gone says that a rank's connection died. Before release the rank is missing again.
func (g *Gang) Gone(r int, now time.Time) []Event {
	p := &g.ranks[r]
	if !p.live {
		return nil
	}
	p.live, p.goneAt = false, now
	g.live--
	if g.state == Ready {
		g.state = Forming
	}
	return g.settle(now)
}

// Heard says that a byte came from a rank.
func (g *Gang) Heard(r int, now time.Time) { g.ranks[r].heard = now }

// Suspended says whether the scheduler has the job suspended; silence doesn't count while it has.
func (g *Gang) Suspended(yes bool, now time.Time) {
	if g.suspended && !yes {
		for i := range g.ranks {
			g.ranks[i].heard = now
			if !g.ranks[i].goneAt.IsZero() {
				g.ranks[i].goneAt = now
			}
		}
	}
	g.suspended = yes
}

// Exited takes a rank's report of its command's end. A repeated report changes nothing, and one that comes after the
// gang's end is counted and decides nothing.
func (g *Gang) Exited(r int, e Exit, now time.Time) []Event {
	p := &g.ranks[r]
	if p.exit != nil {
		return nil
	}
	p.exit = &e
	p.heard = now
	g.exited++
	if g.state == Done {
		return nil
	}
	switch e.By {
	case ByWalltime:
		return g.decide(Outcome{Cause: Walltime, Code: orElse(code(e), 143), Signal: e.Signal, Rank: r, Host: p.member.Host}, now)
	case ByScheduler, ByOrder:
		// The job's own end will say why; the others get the same signal, or are ended after Drain.
		g.termed = g.termed || e.By == ByScheduler
		if g.stopAt.IsZero() {
			g.stopAt = now
			g.state = Stopping
		}
	default: // by itself, or by what only a later version knows
		if e.Code != 0 || e.Signal != 0 || !g.released {
			return g.decide(Outcome{Cause: CommandFailed, Code: orElse(code(e), 1), Signal: e.Signal, Rank: r, Host: p.member.Host, Message: e.Message}, now)
		}
	}
	return g.settle(now)
}

// Stop ends the gang for a reason of the caller's. The first decision stays.
func (g *Gang) Stop(o Outcome, now time.Time) []Event { return g.decide(o, now) }

func (g *Gang) decide(o Outcome, now time.Time) []Event {
	if g.outcome != nil || g.state == Done {
		// Ranks that never came are blamed for that alone; otherwise whatever is lost until the end is named too.
		if g.outcome != nil && o.Cause == RankLost && g.outcome.Cause != RegistrationTimeout && !slices.Contains(g.outcome.Missing, o.Rank) {
			g.outcome.Missing = append(slices.Clone(g.outcome.Missing), o.Rank)
		}
		return g.settle(now)
	}
	g.outcome = &o
	g.state = Stopping
	g.stopAt = now
	events := []Event{}
	if !g.stoppedBy {
		g.stoppedBy = true
		events = append(events, Event{Kind: StopRanks})
	}
	return append(events, g.settle(now)...)
}

// settle finds out whether every rank is accounted for.
func (g *Gang) settle(now time.Time) []Event {
	if g.state != Released && g.state != Stopping {
		return nil
	}
	for i := range g.ranks {
		p := &g.ranks[i]
		switch {
		case p.exit != nil, p.lost, !p.seen:
		case !p.live && !g.released: // it ran nothing and is not awaited
		default:
			return nil
		}
	}
	if g.outcome == nil {
		g.outcome = g.verdict()
	}
	g.state = Done
	return []Event{{Kind: Finished}}
}
