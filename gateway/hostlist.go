package gateway

import (
	"fmt"
	"strconv"
	"strings"
)

// hostlist compresses node names that differ in a trailing number, in order: n1 n2 n3 x → "n[1-3],x". Order matters
// to whoever expands it: it is the node order.
func hostlist(names []string) string {
	var out []string
	for i := 0; i < len(names); {
		prefix, first, width := splitNumber(names[i])
		if width == 0 {
			out = append(out, names[i])
			i++
			continue
		}
		var ranges []string
		j := i
		for j < len(names) {
			p, start, w := splitNumber(names[j])
			if p != prefix || w != width || w == 0 {
				break
			}
			end := start
			for j++; j < len(names); j++ {
				p, n, w := splitNumber(names[j])
				if p != prefix || w != width || n != end+1 {
					break
				}
				end = n
			}
			r := fmt.Sprintf("%0*d", width, start)
			if end > start {
				r += fmt.Sprintf("-%0*d", width, end)
			}
			ranges = append(ranges, r)
		}
		if len(ranges) == 1 && !strings.Contains(ranges[0], "-") {
			out = append(out, prefix+fmt.Sprintf("%0*d", width, first))
		} else {
			out = append(out, prefix+"["+strings.Join(ranges, ",")+"]")
		}
		i = j
	}
	return strings.Join(out, ",")
}

// splitNumber cuts a trailing number off a name. Only a number with leading zeros has a fixed width; the width of
// others is 1, so that n9 and n10 stand in one range.
func splitNumber(name string) (prefix string, n, width int) {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	digits := name[i:]
	if digits == "" || len(digits) > 9 {
		return name, 0, 0
	}
	n, _ = strconv.Atoi(digits) // at most nine digits
	width = 1
	if digits[0] == '0' {
		width = len(digits)
	}
	return name[:i], n, width
}
