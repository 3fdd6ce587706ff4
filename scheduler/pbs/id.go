package pbs

import (
	"regexp"
	"strings"
)

// Job ids: "12.server", an array "12[].server", one of its jobs "12[3].server"; the server may be left out, and
// may or may not carry its domain. To anybody else an id is opaque text.
var (
	anyID     = regexp.MustCompile(`^[0-9]+(\[[0-9]*\])?(\.[A-Za-z0-9][A-Za-z0-9._-]*)?$`)
	printedID = regexp.MustCompile(`^[0-9]+(\[[0-9]*\])?\.[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// isID tells whether text can be handed to qstat as a job. Anything else would be read as a queue's name.
func isID(text string) bool { return len(text) <= 300 && anyID.MatchString(text) }

// printedIDs returns the lines that are a whole id as the commands print them, and those that are neither that
// nor empty.
func printedIDs(out []byte) (ids, rest []string) {
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case line == "":
		case len(line) <= 300 && printedID.MatchString(line):
			ids = append(ids, line)
		default:
			rest = append(rest, line)
		}
	}
	return ids, rest
}

// sameJob tells whether two ids name the same job: equal numbers, and equal servers as far as both say.
func sameJob(a, b string) bool {
	an, as, _ := strings.Cut(a, ".")
	bn, bs, _ := strings.Cut(b, ".")
	if an != bn {
		return false
	}
	return as == "" || bs == "" || as == bs || strings.HasPrefix(as, bs+".") || strings.HasPrefix(bs, as+".")
}
