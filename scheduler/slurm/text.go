package slurm

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown bounds, in bytes, what is repeated of a command's words.
const maxShown = 2000

// shown makes text of a tool fit to be printed: control characters and bytes that are not UTF-8 neutralised, blank
// edges cut, at most maxShown bytes, the end kept.
func shown(b []byte) string {
	const cut = "… "
	limit := len(b) - 4*maxShown
	if limit > 0 {
		b = b[limit:]
	}
	s := strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case r == '\r':
			return -1
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, string(b))
	s = strings.TrimSpace(s)
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[len(s)-maxShown+len(cut):], "")
		s = cut + s
	}
	return s
}

// word is shown for one value of one line: newlines become blanks.
func word(s string) string { return strings.ReplaceAll(shown([]byte(s)), "\n", " ") }
