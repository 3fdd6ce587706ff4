package gang

import "time"

// Restore returns a released gang after a restart: no rank is connected, and the clocks of those that have not ended
// start at now. o is what was decided already, nil for nothing; it stays, whatever the exits say, and the ranks that it
// names as missing are not waited for.
func Restore(members []Member, exits map[int]Exit, o *Outcome, l Limits, now time.Time) (*Gang, []Event) {
	g := New(len(members), l)
	g.state, g.released = Released, true
	g.first = now
	for i := range g.ranks {
		g.ranks[i] = rank{member: members[i], seen: true, goneAt: now, heard: now}
	}
	var events []Event
	if o != nil && o.Cause != Undecided { // exits will say again that nothing is decided
		for _, r := range o.Missing {
			if r >= 0 && r < len(g.ranks) {
				g.ranks[r].lost = true
			}
		}
		events = g.decide(*o, now)
	}
	for r := range g.ranks { // in order, so that it comes out the same after every restart
		if e, ended := exits[r]; ended {
			events = append(events, g.Exited(r, e, now)...)
		}
	}
	return g, events
}
