package gateway

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// closable is a connection that only knows whether it was closed.
type closable struct {
	net.Conn
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

// sits is a peer that has a slot.
type sits struct {
	source string
	state  slotState
	age    time.Duration
}

func sit(t *testing.T, s *slots, of sits) (*slot, *closable) {
	t.Helper()
	c := &closable{}
	taken, verdict := s.take(c, netip.MustParseAddr(of.source))
	require.Equal(t, slotTaken, verdict, "%v", of)
	taken.since = taken.since.Add(-of.age)
	switch of.state {
	case slotTalking:
		taken.spoke()
	case slotHeard:
		require.True(t, taken.heard())
	case slotParked:
		taken.park()
	}
	return taken, c
}

// TestSlots: who is let in where others sit, and who goes for it.
func TestSlots(t *testing.T) {
	const (
		a, b, c        = "10.0.0.1", "10.0.0.2", "fd00::3"
		local4, local6 = "127.0.0.1", "::1"
		old            = quietAfter
	)
	silent := func(source string) sits { return sits{source, slotSilent, 0} }
	quiet := func(source string) sits { return sits{source, slotSilent, old} }
	talking := func(source string) sits { return sits{source, slotTalking, old} }
	heard := func(source string) sits { return sits{source, slotHeard, old} }
	parked := func(source string) sits { return sits{source, slotParked, old} }
	const nobody = -1
	tests := []struct {
		name      string
		bound     int
		perSource int
		there     []sits
		comes     string
		want      slotVerdict
		goes      int // index of who is evicted, or unparked
	}{
		{"the first", 1, 1, nil, a, slotTaken, nobody},
		{"the rule of sources rests while half the slots are free", 5, 1, []sits{silent(a), silent(a)}, a, slotTaken, nobody},
		{"a source at its bound", 4, 2, []sits{silent(a), silent(a)}, a, slotSource, nobody},
		{"talking is no help", 4, 2, []sits{talking(a), talking(a)}, a, slotSource, nobody},
		{"a source at its bound takes from its own quiet peer", 4, 2, []sits{quiet(a), silent(a)}, a, slotTaken, 0},
		{"but not from others", 6, 2, []sits{quiet(b), talking(a), talking(a)}, a, slotSource, nobody},
		{"another source below its bound", 4, 2, []sits{silent(a), silent(a)}, b, slotTaken, nobody},
		{"127.0.0.1 has no bound", 4, 1, []sits{silent(local4), silent(local4), silent(local4)}, local4, slotTaken, nobody},
		{"::1 has no bound", 4, 1, []sits{silent(local6), silent(local6), silent(local6)}, local6, slotTaken, nobody},
		{"its own source has it all", 3, 9, []sits{talking(a), silent(a), silent(a)}, a, slotBusy, nobody},
		{"all hold one", 2, 9, []sits{silent(a), talking(b)}, c, slotBusy, nobody},
		{"it would hold more than whom it takes from", 3, 9, []sits{silent(a), silent(a), silent(b)}, b, slotBusy, nobody},
		{"one from the heaviest, silent first", 4, 9, []sits{talking(a), silent(a), silent(a), silent(b)}, c, slotTaken, 1},
		{"one from the heaviest, its oldest that talks", 4, 9, []sits{silent(b), talking(a), talking(a), talking(a)}, c, slotTaken, 1},
		{"two hold less than the heaviest", 4, 9, []sits{silent(b), talking(a), talking(a), talking(a)}, b, slotTaken, 1},
		{"whose hello is here stays", 4, 9, []sits{heard(a), heard(a), heard(a), talking(b)}, c, slotBusy, nobody},
		{"whose hello is here stays, another goes", 5, 9, []sits{heard(a), heard(a), heard(a), talking(b), talking(b)}, c, slotTaken, 3},
		{"who has come just now isn't quiet", 5, 9, []sits{talking(a), talking(a), talking(a), silent(b), silent(b)}, c, slotTaken, 0},
		{"who is quiet goes first, wherever it is from", 5, 9, []sits{talking(a), talking(a), talking(a), quiet(b), silent(b)}, c, slotTaken, 3},
		{"who is quiet goes even if it is its source's only one", 2, 9, []sits{talking(a), quiet(b)}, c, slotTaken, 1},
		{"who is quiet stays where the newcomer holds as much", 3, 9, []sits{quiet(a), talking(b), talking(b)}, b, slotBusy, nobody},
		{"who is quiet goes for its own source", 3, 9, []sits{quiet(a), talking(b), talking(b)}, a, slotTaken, 0},
		{"127.0.0.1 locks nobody out", 3, 1, []sits{talking(local4), talking(local4), talking(local4)}, a, slotTaken, 0},
		{"nor ::1", 3, 1, []sits{talking(local6), talking(local6), talking(local6)}, local4, slotTaken, 0},
		{"who is refused already goes for anybody", 3, 9, []sits{parked(a), talking(b), talking(b)}, b, slotTaken, 0},
		{"the first refused goes first", 3, 9, []sits{talking(b), parked(a), parked(b)}, b, slotTaken, 1},
		{"who is refused already doesn't count for its source", 4, 2, []sits{parked(a), talking(a), talking(b)}, a, slotTaken, nobody},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSlots(tt.bound, tt.perSource)
			var there []*slot
			var conns []*closable
			for _, of := range tt.there {
				taken, c := sit(t, s, of)
				there, conns = append(there, taken), append(conns, c)
			}
			came, verdict := s.take(&closable{}, netip.MustParseAddr(tt.comes))
			require.Equal(t, tt.want, verdict)
			assert.Equal(t, tt.want == slotTaken, came != nil)
			for i, sits := range there {
				was, is := tt.there[i].state, sits.state
				switch {
				case i != tt.goes:
					assert.Equal(t, was, is, "peer %d", i)
					assert.False(t, conns[i].closed, "peer %d", i)
				case was == slotParked:
					assert.Equal(t, slotOver, is)
					assert.NotPanics(t, func() { <-sits.out })
					assert.False(t, conns[i].closed, "it is to have its answer first")
				default:
					assert.Equal(t, slotEvicted, is)
					assert.True(t, conns[i].closed)
					assert.False(t, sits.heard(), "its hello comes too late")
				}
			}
			if came != nil {
				there = append(there, came)
			}
			for i, sits := range there {
				assert.Equal(t, i == tt.goes && tt.there[i].state != slotParked, sits.give(), "peer %d", i)
			}
			assert.Zero(t, s.inUse())
			assert.Empty(t, s.sources, "no source is remembered without a slot")
			assert.Empty(t, s.ranked)
			assert.Zero(t, s.silent.Len()+s.parked.Len())
		})
	}
}

// TestSlotsAreShared plays random comings and goings. Whatever happens, the books are right, nobody is turned away
// while a source has two more than theirs would, and who takes a slot takes it from a source with more.
func TestSlotsAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSlots(rapid.IntRange(1, 12).Draw(t, "bound"), rapid.IntRange(1, 6).Draw(t, "per source"))
		var all []*slot
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				addr := netip.AddrFrom4([4]byte{127, 0, 0, rapid.Byte().Draw(t, "source")%4 + 1})
				share := map[netip.Addr]int{}
				for _, src := range s.sources {
					share[src.addr] = src.evictable()
				}
				held := 0
				if src := s.sources[addr]; src != nil {
					held = src.held
				}
				full, half := s.used == s.bound, 2*s.used >= s.bound
				quiet := s.silent.Len() > 0 && front(&s.silent).isQuiet(time.Now())
				came, verdict := s.take(&closable{}, addr)
				switch verdict {
				case slotBusy:
					for _, n := range share {
						if !full || n > share[addr]+1 {
							t.Fatalf("busy for %s with %v", addr, share)
						}
					}
				case slotSource:
					if isLocalhost(addr) || !half || held < s.perSource {
						t.Fatalf("%s was held to the bound of sources", addr)
					}
				case slotTaken:
					all = append(all, came)
					if has := s.sources[addr].held; half && !isLocalhost(addr) && has > s.perSource && has > held {
						t.Fatalf("%s has %d slots", addr, has)
					}
				}
				for from, had := range share {
					has := 0
					if src := s.sources[from]; src != nil {
						has = src.evictable()
					}
					if has < had && (had <= share[addr] || !quiet && has < s.sources[addr].evictable()) {
						t.Fatalf("%s took a slot from %s: %v", addr, from, share)
					}
				}
			},
			"wait": func(*rapid.T) {
				for _, o := range all {
					o.since = o.since.Add(-quietAfter)
				}
			},
			"speak": func(t *rapid.T) { each(t, all, slotSilent, func(o *slot) { o.spoke() }) },
			"hello": func(t *rapid.T) {
				each(t, all, slotTalking, func(o *slot) {
					if !o.heard() {
						t.Fatal("nobody evicted it")
					}
				})
			},
			"refused": func(t *rapid.T) { each(t, all, slotHeard, func(o *slot) { o.park() }) },
			"leave": func(t *rapid.T) {
				for _, state := range []slotState{slotSilent, slotTalking, slotHeard, slotParked, slotEvicted, slotOver} {
					each(t, all, state, func(o *slot) {
						if o.give() != (state == slotEvicted) {
							t.Fatal("given back wrongly")
						}
					})
				}
			},
			"": func(t *rapid.T) { balanced(t, s, all) },
		})
	})
}

// each does something to one of the slots in a state, if there is one.
func each(t *rapid.T, all []*slot, state slotState, do func(*slot)) {
	var in []*slot
	for _, o := range all {
		if o.state == state {
			in = append(in, o)
		}
	}
	if len(in) > 0 {
		do(in[rapid.IntRange(0, len(in)-1).Draw(t, "which")])
	}
}

// balanced holds the books against the slots themselves.
func balanced(t *rapid.T, s *slots, all []*slot) {
	states := map[slotState]int{}
	held := map[netip.Addr]int{}
	for _, o := range all {
		states[o.state]++
		if o.state <= slotHeard {
			held[o.src.addr]++
		}
		if closed := o.conn.(*closable).closed; closed != (o.state == slotEvicted) {
			t.Fatalf("closed is %v in state %d", closed, o.state)
		}
	}
	used := states[slotSilent] + states[slotTalking] + states[slotHeard]
	if s.used != used || s.silent.Len() != states[slotSilent] || s.parked.Len() != states[slotParked] || used+states[slotParked] > s.bound {
		t.Fatalf("%d used of %d, %d silent, %d parked; really %v", s.used, s.bound, s.silent.Len(), s.parked.Len(), states)
	}
	if len(s.sources) != len(held) || len(s.ranked) != len(held) {
		t.Fatalf("%d sources, %d ranked, really %d", len(s.sources), len(s.ranked), len(held))
	}
	for i, src := range s.ranked {
		if src.held != held[src.addr] || src.at != i || src.evictable() > s.ranked[0].evictable() {
			t.Fatalf("source %s has %d, really %d; it is at %d, really %d", src.addr, src.held, held[src.addr], src.at, i)
		}
	}
}
