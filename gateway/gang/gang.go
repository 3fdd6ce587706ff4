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

// Cause says why a gang ended.
type Cause string

// The causes. Undecided means that ranks ended by the scheduler's TERM and the job's own end must tell why.
const (
	Completed           Cause = "completed"
	CommandFailed       Cause = "command failed"
	RegistrationTimeout Cause = "registration timeout"
	RankLost            Cause = "rank lost"
	Walltime            Cause = "walltime"
	Stopped             Cause = "stopped" // by Stop: cancel, lease, a requeue
	Undecided           Cause = "undecided"
)

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
}

// Exit is a rank's own report of its command's end.
type Exit struct {
	Code    int
	Signal  int
	By      ExitBy
	Message string
}

// ExitBy says what ended the command, if not the command itself.
type ExitBy string

// What can end a command.
const (
	ByItself    ExitBy = ""
	ByOrder     ExitBy = "order"
	ByScheduler ExitBy = "scheduler"
	ByWalltime  ExitBy = "walltime"
)

// Outcome is why and how the gang ended.
type Outcome struct {
	Cause   Cause
	Code    int // the workload's exit code
	Signal  int
	Rank    int // that decided it, -1 for none
	Host    string
	Message string
	Missing []int // ranks that never came or were lost
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
	member   Member
	seen     bool      // registered at least once
	live     bool      // has a connection
	heard    time.Time // last word
	goneAt   time.Time // when its connection died
	exit     *Exit
	lost     bool
	progress float64
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

// Restore returns a released gang after a restart: no rank is connected, and the clocks of those that have not ended
// start at now.
func Restore(members []Member, exits map[int]Exit, l Limits, now time.Time) (*Gang, []Event) {
	g := New(len(members), l)
	g.state, g.released = Released, true
	g.first = now
	for i := range g.ranks {
		g.ranks[i] = rank{member: members[i], seen: true, goneAt: now, heard: now}
	}
	var events []Event
	for r, e := range exits {
		if r >= 0 && r < len(g.ranks) {
			events = append(events, g.Exited(r, e, now)...)
		}
	}
	return g, events
}

// State of the gang.
func (g *Gang) State() State { return g.state }

// Size in ranks.
func (g *Gang) Size() int { return len(g.ranks) }

// Live is the number of ranks with a connection.
func (g *Gang) Live() int { return g.live }

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

// HasExited tells whether the rank reported its end.
func (g *Gang) HasExited(r int) bool { return g.ranks[r].exit != nil }

// IsLive tells whether the rank has a connection.
func (g *Gang) IsLive(r int) bool { return g.ranks[r].live }

// Join registers a rank's connection. It returns false, and changes nothing, for a second registration of a live
// rank that doesn't replace the first (resume or repeated answer), and for any registration of a gang that is over.
func (g *Gang) Join(r int, m Member, replace bool, now time.Time) (bool, []Event) {
	p := &g.ranks[r]
	if g.state == Done || p.lost || p.live && !replace {
		return false, nil
	}
	if g.state > Ready && !p.seen {
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
	if g.state == Forming && g.live == len(g.ranks) {
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

// Exited takes a rank's report of its command's end. A repeated report changes nothing.
func (g *Gang) Exited(r int, e Exit, now time.Time) []Event {
	p := &g.ranks[r]
	if p.exit != nil || g.state == Done {
		return nil
	}
	p.exit = &e
	p.heard = now
	g.exited++
	switch e.By {
	case ByItself:
		if e.Code != 0 || e.Signal != 0 {
			return g.decide(Outcome{Cause: CommandFailed, Code: code(e), Signal: e.Signal, Rank: r, Host: p.member.Host, Message: e.Message}, now)
		}
	case ByWalltime:
		return g.decide(Outcome{Cause: Walltime, Code: orElse(code(e), 143), Signal: e.Signal, Rank: r, Host: p.member.Host}, now)
	case ByScheduler:
		// The job's own end will say why; the others get the same signal, or are ended after Drain.
		g.termed = true
		if g.stopAt.IsZero() && g.released {
			g.stopAt = now
			g.state = Stopping
		}
	}
	return g.settle(now)
}

// Stop ends the gang for a reason of the caller's. The first decision stays.
func (g *Gang) Stop(o Outcome, now time.Time) []Event { return g.decide(o, now) }

// Tick looks at the clocks. It may be called at any time; Next says when it has something to do.
func (g *Gang) Tick(now time.Time) []Event {
	var events []Event
	if g.state == Done {
		return nil
	}
	if g.state == Forming && !g.first.IsZero() && g.outcome == nil && !now.Before(g.first.Add(g.limits.Timeout)) {
		missing := g.Missing()
		events = append(events, g.decide(Outcome{Cause: RegistrationTimeout, Code: 1, Rank: firstOf(missing), Missing: missing}, now)...)
	}
	if g.state >= Released && !g.suspended {
		for i := range g.ranks {
			p := &g.ranks[i]
			if p.exit != nil || p.lost {
				continue
			}
			late := p.live && !now.Before(p.heard.Add(g.limits.LostAfter)) ||
				!p.live && p.seen && !now.Before(p.goneAt.Add(g.limits.OrphanTTL))
			if late {
				events = append(events, g.lose(i, now)...)
			}
		}
	}
	if !g.stopAt.IsZero() && !now.Before(g.stopAt.Add(g.limits.Drain)) {
		if !g.stoppedBy { // the scheduler's TERM reached only some
			g.stoppedBy = true
			g.stopAt = now
			return append(events, Event{Kind: StopRanks})
		}
		for i := range g.ranks {
			if p := &g.ranks[i]; p.seen && p.exit == nil && !p.lost {
				events = append(events, g.lose(i, now)...)
			}
		}
	}
	return append(events, g.settle(now)...)
}

// Next is when Tick has something to do; zero for never.
func (g *Gang) Next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if g.state == Done {
		return next
	}
	if g.state == Forming && !g.first.IsZero() && g.outcome == nil {
		sooner(g.first.Add(g.limits.Timeout))
	}
	if g.state >= Released && !g.suspended {
		for i := range g.ranks {
			p := &g.ranks[i]
			switch {
			case p.exit != nil || p.lost || !p.seen:
			case p.live:
				sooner(p.heard.Add(g.limits.LostAfter))
			default:
				sooner(p.goneAt.Add(g.limits.OrphanTTL))
			}
		}
	}
	if !g.stopAt.IsZero() {
		sooner(g.stopAt.Add(g.limits.Drain))
	}
	return next
}

// lose gives a rank up. Losing a rank ends the gang.
func (g *Gang) lose(r int, now time.Time) []Event {
	p := &g.ranks[r]
	p.lost = true
	if p.live {
		p.live = false
		g.live--
	}
	events := []Event{{Kind: LoseRank, Rank: r}}
	return append(events, g.decide(Outcome{Cause: RankLost, Code: 1, Rank: r, Host: p.member.Host, Missing: []int{r}}, now)...)
}

func (g *Gang) decide(o Outcome, now time.Time) []Event {
	if g.outcome != nil || g.state == Done {
		if g.outcome != nil && o.Cause == RankLost && !slices.Contains(g.outcome.Missing, o.Rank) {
			g.outcome.Missing = append(g.outcome.Missing, o.Rank)
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

// verdict of a gang whose ranks all ended without a decision.
func (g *Gang) verdict() *Outcome {
	for i := range g.ranks {
		if e := g.ranks[i].exit; e == nil || e.By == ByScheduler || e.By == ByOrder {
			o := Outcome{Cause: Undecided, Rank: i, Host: g.ranks[i].member.Host, Code: 143}
			if e != nil {
				o.Code, o.Signal = orElse(code(*e), 143), e.Signal
			}
			return &o
		}
	}
	return &Outcome{Cause: Completed, Rank: 0, Host: g.ranks[0].member.Host}
}

// code is the exit code a shell would show.
func code(e Exit) int {
	if e.Signal != 0 {
		return 128 + e.Signal
	}
	return e.Code
}

func orElse(code, other int) int {
	if code != 0 {
		return code
	}
	return other
}

func firstOf(r []int) int {
	if len(r) == 0 {
		return -1
	}
	return r[0]
}
