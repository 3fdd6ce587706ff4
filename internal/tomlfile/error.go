package tomlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error is what is wrong with one key of one file, and what would be right. Its text is
//
//	FILE:LINE: key "profiles.gpu.max_nodes": message
//
// without the parts that aren't known. The hint is kept apart, so that a command can show it on a line of its own.
type Error struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1; 0: not known
	Column int    `json:"column,omitempty"` // from 1, in bytes; 0: not known
	Key    Key    `json:"key,omitempty"`
	Msg    string `json:"message"`
	Hint   string `json:"hint,omitempty"`
	Err    error  `json:"-"` // the cause, for errors.Is; may be nil
}

// Error is the text without the hint.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(Clean(e.File))
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		fmt.Fprintf(&b, "key \"%s\": ", Clean(string(e.Key)))
	}
	b.WriteString(e.Msg)
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Remedy returns the hint; commands look for this method on any error.
func (e *Error) Remedy() string { return e.Hint }

// Problems collects errors so that the one returned doesn't depend on the order of checking.
type Problems struct{ list []*Error }

// Add takes one more.
func (p *Problems) Add(e *Error) { p.list = append(p.list, e) }

// First returns the error that stands first in its file, nil if there is none. Errors without a line come last:
// they are about what is missing.
func (p *Problems) First() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		if (a.Line == 0) != (b.Line == 0) {
			return b.Line - a.Line
		}
		return cmp.Or(a.Line-b.Line, a.Column-b.Column, cmp.Compare(a.Key, b.Key))
	})
	return p.list[0]
}

// maxShown is how many runes of a value an error shows.
const maxShown = 80

// Clean makes text of a file safe to show: control characters and what isn't UTF-8 are escaped, the rest kept,
// and what is too long is cut.
func Clean(s string) string {
	var b strings.Builder
	n := 0
	for i, r := range s {
		if n++; n > 4*maxShown {
			b.WriteString("…")
			break
		}
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Show quotes a value for an error's text, cut where it is long.
func Show(s string) string {
	if utf8.RuneCountInString(s) > maxShown {
		s = string([]rune(s)[:maxShown]) + "…"
	}
	return `"` + Clean(s) + `"`
}
