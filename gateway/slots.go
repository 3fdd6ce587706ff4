package gateway

import (
	"net/netip"
	"sync"
)

// slots bounds pending handshakes: all of them, and those of one source address.
type slots struct {
	mu        sync.Mutex
	bound     int
	perSource int
	used      int
	bySource  map[netip.Addr]int
}

type slotVerdict int

const (
	slotTaken slotVerdict = iota
	slotBusy
	slotSource
)

func newSlots(bound, perSource int) *slots {
	return &slots{bound: bound, perSource: perSource, bySource: map[netip.Addr]int{}}
}

// take takes a slot for a source. The bound per source acts only while half the slots are taken, and never for
// 127.0.0.1 and ::1, behind which whole gangs may sit.
func (s *slots) take(src netip.Addr) slotVerdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.bound {
		return slotBusy
	}
	if 2*s.used >= s.bound && !isLocalhost(src) && s.bySource[src] >= s.perSource {
		return slotSource
	}
	s.used++
	s.bySource[src]++
	return slotTaken
}

func (s *slots) give(src netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.bySource[src]--; s.bySource[src] <= 0 {
		delete(s.bySource, src)
	}
}

func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func isLocalhost(a netip.Addr) bool {
	return a == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || a == netip.IPv6Loopback()
}
