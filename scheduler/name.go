package scheduler

import "strings"

// maxJobName is how much of a workload's own name a job name holds.
const maxJobName = 32

// JobName is the name an allocation's job has in its scheduler, "<prefix>-<name>-<12 hex>": the token the job is
// looked up by. Only ASCII letters, digits, "-" and "_" are kept, and it begins with a letter, so that every
// supported scheduler takes it and stores it whole.
func JobName(r Request, a AllocationID) string {
	prefix := plain(r.JobNamePrefix)
	if prefix == "" || !isLetter(prefix[0]) {
		prefix = "openai4s"
	}
	name := plain(r.Name)
	if len(name) > maxJobName {
		name = name[:maxJobName]
	}
	if name == "" {
		name = "job"
	}
	return prefix + "-" + name + "-" + a.Hex()
}

func plain(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c < 0x80 && isLetter(byte(c)), c >= '0' && c <= '9', c == '-', c == '_':
			return c
		case c == '.' || c == ' ':
			return '_'
		}
		return -1
	}, s)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
