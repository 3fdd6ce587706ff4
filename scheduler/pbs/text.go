package pbs

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds foreign text in messages.
const maxText = 2048

// neutral makes text of a tool fit to be shown: trimmed, valid UTF-8, its line breaks kept, other control
// characters replaced, capped.
func neutral(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return '\uFFFD'
		}
		return r
	}, s)
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// oneLine is neutral without line breaks.
func oneLine(s string) string { return strings.ReplaceAll(neutral(s), "\n", " ") }
