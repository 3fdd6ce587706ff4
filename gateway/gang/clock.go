package gang

import "time"

// Tick looks at the clocks. It may be called at any time; Next says when it has something to do.
func (g *Gang) Tick(now time.Time) []Event {
	var events []Event
	if g.state == Done {
		return nil
	}
	if g.state == Forming && !g.first.IsZero() && g.outcome == nil && !now.Before(g.first.Add(g.limits.Timeout)) {
		o := Outcome{Cause: RegistrationTimeout, Code: 1, Missing: g.NeverCame()}
		if len(o.Missing) == 0 {
			o.Missing, o.Gone = g.Missing(), true
		}
		o.Rank = firstOf(o.Missing)
		events = append(events, g.decide(o, now)...)
	}
	if g.state >= Released && !g.suspended {
		for i := range g.ranks {
			p := &g.ranks[i]
			if p.exit != nil || p.lost {
				continue
			}
			late := p.live && !p.member.Quiet && !now.Before(p.heard.Add(g.limits.LostAfter)) ||
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
			case p.live && p.member.Quiet:
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
