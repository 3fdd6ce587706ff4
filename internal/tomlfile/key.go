package tomlfile

import (
	"strconv"
	"strings"
)

// Key is the full name of a key as errors show it and as it may be written in a file: parts joined by dots,
// parts that aren't bare in quotes, elements of arrays as [0].
type Key string

// Dot is the key named part below k.
func (k Key) Dot(part string) Key {
	if !isBare(part) {
		part = quoteKey(part)
	}
	if k == "" {
		return Key(part)
	}
	return k + "." + Key(part)
}

// Index is element i of the array k.
func (k Key) Index(i int) Key { return k + Key("["+strconv.Itoa(i)+"]") }

// Parent is the key that k stands in, "" for the top.
func (k Key) Parent() Key {
	quoted := false
	last := -1
	for i := 0; i < len(k); i++ {
		switch c := k[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '.' || c == '['):
			last = i
		}
	}
	if last < 0 {
		return ""
	}
	return k[:last]
}

func isBare(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) < 0
}

var keyEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoteKey(s string) string { return `"` + keyEscapes.Replace(s) + `"` }

// Nearest returns the name most like s among names, "" when none is near enough to be meant.
func Nearest(s string, names []string) string {
	best, bestAt := "", 1+max(1, len(s)/3)
	for _, n := range names {
		if strings.EqualFold(strings.ReplaceAll(s, "-", "_"), strings.ReplaceAll(n, "-", "_")) {
			return n
		}
		if d := distance(strings.ToLower(s), strings.ToLower(n), bestAt); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

// distance counts the insertions, deletions, substitutions and swaps of neighbours between a and b; it may return
// limit as soon as the distance is known to be no smaller.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 64 {
		return limit
	}
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
