package gateway

import (
	"container/heap"
	"container/list"
	"net"
	"time"
)

// slot is one pending handshake's place.
type slot struct {
	slots *slots
	conn  net.Conn
	src   *source
	since time.Time

	// Below is guarded by slots.mu.
	state    slotState
	own, all *list.Element // in a list of the source, or of what is parked; in that of all silent peers
	out      chan struct{} // closed when a parked peer must go
}

type slotState int

const (
	slotSilent  slotState = iota // nothing came yet
	slotTalking                  // something came, not the whole hello
	slotHeard                    // the hello is here: not evicted any more, since a burn may be under way
	slotParked                   // refused, and the answer is delayed; the slot is given back
	slotEvicted
	slotOver
)

func (t *slot) isQuiet(now time.Time) bool { return now.Sub(t.since) >= quietAfter }

// spoke notes the peer's first byte.
func (t *slot) spoke() {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.state == slotSilent {
		t.unlist()
		t.state, t.own = slotTalking, t.src.talking.PushBack(t)
	}
}

// heard notes that the whole hello is here; false: the peer was evicted before.
func (t *slot) heard() bool {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.state == slotEvicted {
		return false
	}
	t.unlist()
	t.state = slotHeard
	heap.Fix(&s.ranked, t.src.at)
	return true
}

// park gives the slot back and keeps the peer until its answer is due. It may stay no longer than nobody wants its
// place: then the channel is closed.
func (t *slot) park() <-chan struct{} {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	t.leave(slotParked)
	t.own, t.out = s.parked.PushBack(t), make(chan struct{})
	return t.out
}

// unpark ends a parked peer's wait. The caller holds slots.mu.
func (t *slot) unpark() {
	t.unlist()
	t.state = slotOver
	close(t.out)
}

// give gives the slot back; it tells whether the peer had been evicted.
func (t *slot) give() (evicted bool) {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t.state {
	case slotEvicted:
		return true
	case slotParked:
		t.unpark()
	case slotOver:
	default:
		t.leave(slotOver)
	}
	return false
}

// leave takes a handshake off the books. The caller holds slots.mu.
func (t *slot) leave(to slotState) {
	s, src := t.slots, t.src
	t.unlist()
	t.state = to
	s.used--
	if src.held--; src.held == 0 {
		heap.Remove(&s.ranked, src.at)
		delete(s.sources, src.addr)
		return
	}
	heap.Fix(&s.ranked, src.at)
}

// unlist takes the slot out of the lists that its state put it in. The caller holds slots.mu.
func (t *slot) unlist() {
	switch t.state {
	case slotSilent:
		t.src.silent.Remove(t.own)
		t.slots.silent.Remove(t.all)
	case slotTalking:
		t.src.talking.Remove(t.own)
	case slotParked:
		t.slots.parked.Remove(t.own)
	}
	t.own, t.all = nil, nil
}

// listening is a connection that tells its slot of the first byte that comes.
type listening struct {
	net.Conn
	slot *slot // nil once it came
}

func (l *listening) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 && l.slot != nil {
		l.slot.spoke()
		l.slot = nil
	}
	return n, err
}
