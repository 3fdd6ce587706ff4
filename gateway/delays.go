package gateway

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// A source's first refusal is answered at once, the second after firstDelay, each further one after twice as long up
// to longestDelay. Every delayDecay without a refusal takes one step back. maxDelays sources are remembered, the
// latest; about 200 bytes each.
const (
	firstDelay   = 50 * time.Millisecond
	longestDelay = 2 * time.Second
	delaySteps   = 7 // until longestDelay
	delayDecay   = 10 * time.Second
	maxDelays    = 4096
)

// delays remembers which sources were refused lately. A good credential is never asked about: many ranks may share an
// address with whoever is refused.
type delays struct {
	mu     sync.Mutex
	of     map[netip.Addr]*list.Element
	recent list.List // of *offence, the latest last
}

type offence struct {
	source netip.Addr
	steps  int
	at     time.Time
}

// next is how long a refusal's answer has to wait; it makes the next one's wait longer.
func (d *delays) next(source netip.Addr, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[netip.Addr]*list.Element{}
	}
	e := d.of[source]
	if e == nil {
		e = d.recent.PushBack(&offence{source: source, at: now})
		d.of[source] = e
		if d.recent.Len() > maxDelays {
			first := d.recent.Front()
			d.recent.Remove(first)
			delete(d.of, first.Value.(*offence).source)
		}
	}
	d.recent.MoveToBack(e)
	o := e.Value.(*offence)
	o.steps = max(0, o.steps-int(now.Sub(o.at)/delayDecay))
	o.at = now
	wait := time.Duration(0)
	if o.steps > 0 {
		wait = min(firstDelay<<(o.steps-1), longestDelay)
	}
	o.steps = min(o.steps+1, delaySteps)
	return wait
}
