package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNeutral(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"plain", "fold n1", "fold n1"},
		{"umlauts", "Größe", "Größe"},
		{"escape sequence", "\x1b[31mred", "\uFFFD[31mred"},
		{"carriage return", "a\rb", "a\uFFFDb"},
		{"newline and tab", "a\n\tb", "a  b"},
		{"C1 control", "a\u009bb", "a\uFFFDb"},
		{"reordering", "a\u202Eb", "a\uFFFDb"},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
		{"too long", strings.Repeat("x", maxText+1), strings.Repeat("x", maxText) + " …"},
		{"cut within a rune", strings.Repeat("x", maxText-1) + "ö", strings.Repeat("x", maxText-1) + " …"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, word(c.in)) })
	}
	require.Equal(t, "a\nb", neutral("a\nb", true))
}

func FuzzNeutral(f *testing.F) {
	f.Add("a\x1b[31m\r\nb")
	f.Add(strings.Repeat("ö", maxText))
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range word(s) {
			if r < 0x20 || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%q leaves %q", s, r)
			}
		}
	})
}
