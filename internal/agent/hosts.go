package agent

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHosts bounds an expanded hostlist.
const maxHosts = 1 << 20

// expand turns a compressed hostlist, "n[1-3,7],login", into names in order. The agent does this itself: a container
// may hold none of the scheduler's tools, and a rank must never believe that it is alone.
func expand(list string) ([]string, error) {
	var hosts []string
	for _, part := range splitTop(list) {
		open := strings.IndexByte(part, '[')
		if open < 0 {
			if part == "" {
				return nil, fmt.Errorf("hostlist %q: an empty name", list)
			}
			hosts = append(hosts, part)
			continue
		}
		if !strings.HasSuffix(part, "]") {
			return nil, fmt.Errorf("hostlist %q: a bracket is not closed", list)
		}
		prefix := part[:open]
		for _, r := range strings.Split(part[open+1:len(part)-1], ",") {
			low, high, isRange := strings.Cut(r, "-")
			if !isRange {
				high = low
			}
			from, err1 := strconv.ParseUint(low, 10, 31)
			to, err2 := strconv.ParseUint(high, 10, 31)
			if err1 != nil || err2 != nil || to < from || to-from >= maxHosts || len(hosts)+int(to-from) >= maxHosts {
				return nil, fmt.Errorf("hostlist %q: the range %q can't be read", list, r)
			}
			for n := from; n <= to; n++ {
				hosts = append(hosts, fmt.Sprintf("%s%0*d", prefix, len(low), n))
			}
		}
	}
	return hosts, nil
}

// splitTop splits at commas outside brackets.
func splitTop(list string) []string {
	var parts []string
	depth, from := 0, 0
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, list[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, list[from:])
}
