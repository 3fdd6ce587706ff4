package gateway

import (
	"container/heap"
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// quietAfter is how long a peer may send nothing before it may be evicted for a newcomer whose source holds as little.
// Its first bytes come at once unless its machine or ours is overloaded.
const quietAfter = 2 * time.Second

// slots bounds pending handshakes: all of them, and those of one source address. Once they have run out they are
// shared out evenly: a newcomer takes over the slot of a peer whose source holds more.
type slots struct {
	bound     int
	perSource int

	mu      sync.Mutex
	used    int // by handshakes; what is parked comes on top, within the bound
	sources map[netip.Addr]*source
	ranked  ranking
	silent  list.List // of *slot: peers of all sources that have sent nothing, oldest first
	parked  list.List // of *slot: refused peers whose answer is delayed, oldest first
}

// source is an address that holds slots.
type source struct {
	addr            netip.Addr
	held            int
	silent, talking list.List // of *slot: those that may be evicted, oldest first
	at              int       // in the ranking
}

// evictable is what counts as a source's share. A peer whose whole hello is here is no longer in it: it is about to
// give its slot back.
func (s *source) evictable() int { return s.silent.Len() + s.talking.Len() }

type slotVerdict int

const (
	slotTaken slotVerdict = iota
	slotBusy
	slotSource
)

func newSlots(bound, perSource int) *slots {
	return &slots{bound: bound, perSource: perSource, sources: map[netip.Addr]*source{}}
}

// take takes a slot for a connection, and closes the one that it takes it from. The bound per source acts only while
// half the slots are taken, and never for 127.0.0.1 and ::1, behind which whole gangs may sit. Once the slots have run
// out these two are sources like any other: what is exempt from the bound must not lock others out.
func (s *slots) take(c net.Conn, addr netip.Addr) (*slot, slotVerdict) {
	now := time.Now()
	s.mu.Lock()
	src := s.sources[addr]
	if src == nil {
		src = &source{addr: addr}
	}
	var out *slot
	switch {
	case 2*s.used >= s.bound && !isLocalhost(addr) && src.held >= s.perSource:
		if out = src.quiet(now); out == nil {
			s.mu.Unlock()
			return nil, slotSource
		}
	case s.used >= s.bound:
		if out = s.victim(src, now); out == nil {
			s.mu.Unlock()
			return nil, slotBusy
		}
	case s.used+s.parked.Len() >= s.bound:
		s.parked.Front().Value.(*slot).unpark()
	}
	if out != nil {
		out.leave(slotEvicted)
	}
	taken := s.seat(c, src, now)
	s.mu.Unlock()
	if out != nil {
		out.conn.Close()
	}
	return taken, slotTaken
}

// victim is who yields to a newcomer of src, nil if nobody does. Who has sent nothing for a while goes first, the
// oldest of all, if its source holds more than the newcomer's; or else the newcomer's own source's. Then the source
// with the most pending peers yields one: who has sent nothing, or else its oldest. It must stay at least as large as
// the newcomer's, so that two sources don't evict each other for ever.
func (s *slots) victim(src *source, now time.Time) *slot {
	if v := front(&s.silent); v != nil && v.isQuiet(now) && v.src.evictable() > src.evictable() {
		return v
	}
	if v := src.quiet(now); v != nil {
		return v
	}
	if len(s.ranked) == 0 {
		return nil
	}
	most := s.ranked[0]
	if most.evictable() <= src.evictable()+1 {
		return nil
	}
	if v := front(&most.silent); v != nil {
		return v
	}
	return front(&most.talking)
}

// quiet is the source's peer that has sent nothing for the longest, if that is a while.
func (s *source) quiet(now time.Time) *slot {
	if v := front(&s.silent); v != nil && v.isQuiet(now) {
		return v
	}
	return nil
}

// seat gives src one slot more.
func (s *slots) seat(c net.Conn, src *source, now time.Time) *slot {
	t := &slot{slots: s, conn: c, src: src, since: now}
	t.own, t.all = src.silent.PushBack(t), s.silent.PushBack(t)
	s.used++
	src.held++
	if src.held == 1 {
		s.sources[src.addr] = src
		heap.Push(&s.ranked, src)
	} else {
		heap.Fix(&s.ranked, src.at)
	}
	return t
}

func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func front(l *list.List) *slot {
	if e := l.Front(); e != nil {
		return e.Value.(*slot)
	}
	return nil
}

// ranking is a heap of sources, the one with the most evictable peers first.
type ranking []*source

func (r ranking) Len() int           { return len(r) }
func (r ranking) Less(i, j int) bool { return r[i].evictable() > r[j].evictable() }
func (r ranking) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].at, r[j].at = i, j
}

// Push and Pop implement heap.Interface.
func (r *ranking) Push(x any) {
	s := x.(*source)
	s.at = len(*r)
	*r = append(*r, s)
}

func (r *ranking) Pop() any {
	last := len(*r) - 1
	s := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return s
}

func isLocalhost(a netip.Addr) bool {
	return a == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || a == netip.IPv6Loopback()
}
