package gang

import (
	"time"
)

var epoch0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var limits = Limits{Timeout: 10 * time.Minute, SilentAfter: 45 * time.Second, LostAfter: 5 * time.Minute, OrphanTTL: 15 * time.Minute, Drain: time.Minute}

// at is a moment of the tests' clock, in seconds.
func at(seconds int) time.Time { return epoch0.Add(time.Duration(seconds) * time.Second) }

// member of a rank, on a host of its own.
func member(r int) Member {
	return Member{Host: string(rune('a' + r)), Address: "10.0.0.1", NodeRank: r, FreePort: 4000 + r}
}

// joined is a gang of which the named ranks have come, at second 0.
func joined(size int, ranks ...int) *Gang {
	g := New(size, limits)
	for _, r := range ranks {
		g.Join(r, member(r), false, at(0))
	}
	return g
}

// released is a gang whose ranks all came and were released at second 0.
func released(size int) *Gang {
	g := New(size, limits)
	for r := range size {
		g.Join(r, member(r), false, at(0))
	}
	g.Release(at(0))
	return g
}

// kinds of events, without ranks.
func kinds(events []Event) []Kind {
	var k []Kind
	for _, e := range events {
		k = append(k, e.Kind)
	}
	return k
}
