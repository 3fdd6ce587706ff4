package gateway

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText caps text of peers and tools before it is kept or shown.
const maxText = 2000

// clean caps text of a peer or a tool and replaces what a terminal would act on.
func clean(s string) string {
	if len(s) > maxText {
		cut := maxText
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == utf8.RuneError, unicode.IsControl(r), unicode.In(r, unicode.Cf):
			return '?'
		}
		return r
	}, s)
}
