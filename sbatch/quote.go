package sbatch

import "strings"

// Quote makes one shell word of any text without NUL, whatever bytes it holds: plain words stay as they are,
// everything else is put between single quotes, in which no character but the quote itself means anything. It
// does not keep a leading dash from being read as an option; that is for the command line to say ("--").
func Quote(s string) string {
	unquoted := s
	if strings.HasPrefix(s, "-") {
		unquoted = strings.ReplaceAll(s, "=", "") // an option; in any other first word it would be an assignment
	}
	if s != "" && strings.IndexFunc(unquoted, special) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// special tells whether a character means something to some shell somewhere in a word. Unlike the usual lists it
// counts "=" and "~", and lets nothing beyond ASCII through.
func special(c rune) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return false
	}
	return !strings.ContainsRune("-_./:,@%+", c)
}
