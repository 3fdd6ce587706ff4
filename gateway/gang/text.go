package gang

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Missing returns the ranks without a connection that have not ended, in order.
func (g *Gang) Missing() []int {
	var missing []int
	for i := range g.ranks {
		if p := &g.ranks[i]; !p.live && p.exit == nil {
			missing = append(missing, i)
		}
	}
	return missing
}

// NeverCame returns the ranks that never registered, in order.
func (g *Gang) NeverCame() []int {
	var ranks []int
	for i := range g.ranks {
		if !g.ranks[i].seen && g.ranks[i].exit == nil {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Unreported returns the ranks that have not told their end, in order.
func (g *Gang) Unreported() []int {
	var ranks []int
	for i := range g.ranks {
		if g.ranks[i].exit == nil {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Silent returns the connected ranks that have not been heard of for SilentAfter.
func (g *Gang) Silent(now time.Time) []int {
	var silent []int
	if g.suspended || g.state < Released {
		return nil
	}
	for i := range g.ranks {
		if p := &g.ranks[i]; p.live && !p.member.Quiet && p.exit == nil && !now.Before(p.heard.Add(g.limits.SilentAfter)) {
			silent = append(silent, i)
		}
	}
	return silent
}

// Text says how the gang stands: "3 of 4 ranks; missing 2 (n3)". hostOf names the host a rank should run on, "" where
// that isn't known.
func (g *Gang) Text(now time.Time, hostOf func(rank int) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d ranks", g.live+g.gone(), len(g.ranks))
	if missing := g.Missing(); len(missing) > 0 {
		b.WriteString("; missing " + List(missing, hostOf))
	}
	if silent := g.Silent(now); len(silent) > 0 {
		b.WriteString("; silent " + List(silent, hostOf))
	}
	if g.exited > 0 {
		fmt.Fprintf(&b, "; %d ended", g.exited)
	}
	return b.String()
}

// gone counts ranks that ended and left: they came, and are not missing.
func (g *Gang) gone() int {
	n := 0
	for i := range g.ranks {
		if p := &g.ranks[i]; !p.live && p.exit != nil {
			n++
		}
	}
	return n
}

// maxListed bounds how many runs of ranks a text names.
const maxListed = 16

// List writes ranks as people read them, "2, 5-7", with hosts where known: "2 (n3), 5-7".
func List(ranks []int, hostOf func(rank int) string) string {
	var b strings.Builder
	listed := 0
	for i := 0; i < len(ranks); {
		j := i
		host := ""
		if hostOf != nil {
			host = hostOf(ranks[i])
		}
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 && (hostOf == nil || hostOf(ranks[j+1]) == host) {
			j++
		}
		if listed == maxListed {
			fmt.Fprintf(&b, " and %d more", len(ranks)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(ranks[j]))
		}
		if host != "" {
			b.WriteString(" (" + host + ")")
		}
		listed++
		i = j + 1
	}
	return b.String()
}
