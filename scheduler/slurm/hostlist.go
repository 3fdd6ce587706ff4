package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	maxHosts    = 64 << 10 // names that one list may stand for
	maxHostlist = 1 << 20  // bytes of the list itself
	maxRanges   = 8        // bracketed parts of one name: Slurm's own are at most a few dimensions
	maxNameLen  = 255
)

// errHostlist is returned for what is no list of hosts, or stands for too many.
var errHostlist = errors.New("not a host list")

// expandHosts writes out n[1-4,7], zero padded numbers and several dimensions (rack[1-2]node[01-16]), in the order in
// which Slurm counts them: the last part runs fastest. "" and "(null)" are no hosts.
func expandHosts(list string) ([]string, error) {
	if list == "" || list == "(null)" || list == "None assigned" || list == "None" {
		return nil, nil
	}
	if len(list) > maxHostlist {
		return nil, fmt.Errorf("%w: longer than %d bytes", errHostlist, maxHostlist)
	}
	var hosts []string
	for rest := list; ; {
		name, tail, more, err := cutName(rest)
		if err != nil {
			return nil, err
		}
		names, err := expandName(name, maxHosts-len(hosts))
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, names...)
		if !more {
			return hosts, nil
		}
		rest = tail
	}
}

// cutName returns the text up to the first comma outside of brackets.
func cutName(list string) (name, rest string, more bool, err error) {
	depth := 0
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				return list[:i], list[i+1:], true, nil
			}
		}
		if depth < 0 || depth > 1 {
			return "", "", false, fmt.Errorf("%w: brackets don't match", errHostlist)
		}
	}
	if depth != 0 {
		return "", "", false, fmt.Errorf("%w: a bracket is not closed", errHostlist)
	}
	return list, "", false, nil
}

// expandName writes out one name with any number of bracketed parts, at most limit names of it.
func expandName(name string, limit int) ([]string, error) {
	names := []string{""}
	for parts := 0; name != ""; {
		open := strings.IndexByte(name, '[')
		if open < 0 {
			return appendAll(names, []string{name}, limit)
		}
		if parts++; parts > maxRanges {
			return nil, fmt.Errorf("%w: more than %d bracketed parts", errHostlist, maxRanges)
		}
		end := strings.IndexByte(name, ']')
		if end < open {
			return nil, fmt.Errorf("%w: brackets don't match", errHostlist)
		}
		values, err := expandRanges(name[open+1:end], limit)
		if err != nil {
			return nil, err
		}
		if names, err = appendAll(names, []string{name[:open]}, limit); err != nil {
			return nil, err
		}
		if names, err = appendAll(names, values, limit); err != nil {
			return nil, err
		}
		name = name[end+1:]
	}
	if len(names) == 1 && names[0] == "" {
		return nil, fmt.Errorf("%w: an empty name", errHostlist)
	}
	return names, nil
}

// appendAll joins every head with every tail.
func appendAll(heads, tails []string, limit int) ([]string, error) {
	if len(heads)*len(tails) > limit {
		return nil, fmt.Errorf("%w: more than %d names", errHostlist, maxHosts)
	}
	all := make([]string, 0, len(heads)*len(tails))
	for _, h := range heads {
		for _, t := range tails {
			if len(h)+len(t) > maxNameLen {
				return nil, fmt.Errorf("%w: a name of more than %d bytes", errHostlist, maxNameLen)
			}
			if strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '[' || r == ']' }) {
				return nil, fmt.Errorf("%w: a blank or control character in a name", errHostlist)
			}
			all = append(all, h+t)
		}
	}
	return all, nil
}

// expandRanges writes out what stands between brackets: 1-4,7,010-012.
func expandRanges(s string, limit int) ([]string, error) {
	var all []string
	for _, part := range strings.Split(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isNumber(from) || isRange && !isNumber(to) {
			return nil, fmt.Errorf("%w: %q is no range of numbers", errHostlist, word(part))
		}
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 63)
		last, err2 := strconv.ParseUint(to, 10, 63)
		if err1 != nil || err2 != nil || last < first || len(from) > maxNameLen {
			return nil, fmt.Errorf("%w: %q is no range of numbers", errHostlist, word(part))
		}
		if last-first >= uint64(limit) || len(all)+int(last-first) >= limit {
			return nil, fmt.Errorf("%w: more than %d names", errHostlist, maxHosts)
		}
		for n := first; n <= last; n++ {
			all = append(all, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return all, nil
}
