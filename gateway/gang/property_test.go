package gang

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model follows a gang from outside and holds what must be true of it after every input.
type model struct {
	g        *Gang
	now      time.Time
	size     int
	first    *Outcome // as it was decided
	finished int
	exited   map[int]bool
	fail     func(format string, args ...any)
}

// apply does one operation, chosen by three small numbers.
func (m *model) apply(op, r, x int) {
	r %= m.size
	m.now = m.now.Add(time.Duration(x) * 7 * time.Second)
	over, lost := m.g.State() == Done, m.g.IsLost(r)
	var events []Event
	switch op {
	case 0, 1, 2:
		ok := false
		ok, events = m.g.Join(r, member(r), x%2 == 1, m.now)
		if ok && lost {
			m.fail("rank %d was given up and came back", r)
		}
	case 3:
		events = m.g.Gone(r, m.now)
	case 4:
		m.g.Heard(r, m.now)
	case 5:
		events = m.g.Exited(r, Exit{Code: x % 3, By: []ExitBy{ByItself, ByItself, ByOrder, ByScheduler, ByWalltime, "new"}[x%6]}, m.now)
		m.exited[r] = true
	case 6:
		m.g.Suspended(x%2 == 1, m.now)
	case 7:
		if x == 3 {
			events = m.g.Stop(Outcome{Cause: Stopped, Code: 20, Rank: -1}, m.now)
		}
	case 8:
		next, gap := m.g.Next(), time.Duration(x)*time.Hour
		due := !next.IsZero() && !m.now.Before(next)
		m.now = m.now.Add(gap)
		m.g.Away(gap, m.now)
		if next := m.g.Next(); !due && !next.IsZero() && !next.After(m.now) {
			m.fail("%s away made something due", gap)
		}
	default:
		m.tick()
		return
	}
	m.after(over, events)
}

// tick holds Next to its word first: a moment before it, nothing happens.
func (m *model) tick() {
	over := m.g.State() == Done
	next := m.g.Next()
	if next.IsZero() || m.now.Before(next) {
		if events := m.g.Tick(m.now); len(events) > 0 {
			m.fail("tick at %s did %v although next is %s", m.now, events, next)
		}
		return
	}
	suspended := m.g.suspended
	events := m.g.Tick(m.now)
	for _, e := range events {
		if e.Kind == LoseRank && suspended && m.g.stopAt.IsZero() {
			m.fail("rank %d of a suspended gang was lost", e.Rank)
		}
	}
	m.after(over, events)
}

func (m *model) after(over bool, events []Event) {
	for _, e := range events {
		switch e.Kind {
		case BecameReady:
			if m.g.Live() != m.size {
				m.fail("ready with %d of %d", m.g.Live(), m.size)
			}
			m.g.Release(m.now)
		case Finished:
			m.finished++
		}
	}
	if over && m.g.State() != Done {
		m.fail("a gang that was over is %s", m.g.State())
	}
	if over && len(events) > 0 {
		m.fail("a gang that was over did %v", events)
	}
	if m.finished > 1 || m.finished == 1 != (m.g.State() == Done) {
		m.fail("finished %d times in state %s", m.finished, m.g.State())
	}
	if m.g.State() == Done && m.g.Outcome() == nil {
		m.fail("over, and nothing decided")
	}
	m.outcome()
	m.counts()
}

func (m *model) outcome() {
	o := m.g.Outcome()
	switch {
	case m.first == nil && o != nil:
		first := *o
		m.first = &first
		if o.Cause == Completed && len(m.exited) != m.size {
			m.fail("completed with %d of %d reports", len(m.exited), m.size)
		}
	case m.first != nil && o == nil:
		m.fail("the outcome was forgotten")
	case m.first != nil && (o.Cause != m.first.Cause || o.Code != m.first.Code || o.Rank != m.first.Rank || o.Message != m.first.Message):
		m.fail("the outcome changed from %+v to %+v", *m.first, *o)
	}
}

// counts: a rank is live, missing, or has ended, and none twice.
func (m *model) counts() {
	live, ended := 0, 0
	missing := map[int]bool{}
	for _, r := range m.g.Missing() {
		missing[r] = true
	}
	for r := range m.size {
		if m.g.IsLive(r) {
			live++
		}
		if m.g.HasExited(r) {
			ended++
		}
		if m.g.IsLive(r) && missing[r] {
			m.fail("rank %d is live and missing", r)
		}
		if !m.g.IsLive(r) && !m.g.HasExited(r) && !missing[r] {
			m.fail("rank %d is nowhere", r)
		}
	}
	if live != m.g.Live() || ended != m.g.ExitedCount() {
		m.fail("counted %d live and %d ended, there are %d and %d", m.g.Live(), m.g.ExitedCount(), live, ended)
	}
}

func newModel(size int, fail func(string, ...any)) *model {
	return &model{g: New(size, limits), now: epoch0, size: size, exited: map[int]bool{}, fail: fail}
}

func TestAnySequenceKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.IntRange(1, 5).Draw(t, "size"), t.Fatalf)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			m.apply(rapid.IntRange(0, 10).Draw(t, "op"), rapid.IntRange(0, 4).Draw(t, "rank"), rapid.IntRange(0, 12).Draw(t, "x"))
		}
	})
}

// Whatever happened, a gang that is stopped and heard of no more comes to its end.
func TestEveryStoppedGangEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.IntRange(1, 5).Draw(t, "size"), t.Fatalf)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			m.apply(rapid.IntRange(0, 10).Draw(t, "op"), rapid.IntRange(0, 4).Draw(t, "rank"), rapid.IntRange(0, 12).Draw(t, "x"))
		}
		m.g.Stop(Outcome{Cause: Stopped, Code: 20, Rank: -1}, m.now)
		for range 20 {
			if m.g.State() == Done {
				return
			}
			next := m.g.Next()
			if next.IsZero() {
				t.Fatalf("stopped, not over, and nothing to wait for")
			}
			m.now = next
			m.g.Tick(m.now)
		}
		t.Fatalf("stopped, and not over after every clock ran out")
	})
}

func FuzzOperations(f *testing.F) {
	f.Add(byte(2), []byte{0, 0, 0, 0, 1, 0, 5, 0, 0, 5, 1, 0})
	f.Add(byte(3), []byte{0, 0, 0, 9, 0, 12, 7, 0, 3, 9, 0, 12, 3, 0, 0})
	f.Add(byte(4), []byte{0, 0, 1, 0, 1, 1, 0, 2, 1, 0, 3, 1, 6, 0, 1, 9, 0, 12, 6, 0, 0})
	f.Fuzz(func(t *testing.T, size byte, ops []byte) {
		m := newModel(int(size%6)+1, t.Fatalf)
		for ; len(ops) >= 3; ops = ops[3:] {
			m.apply(int(ops[0]%11), int(ops[1]), int(ops[2]%13))
		}
	})
}
