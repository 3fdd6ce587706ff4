package rig

import (
	"regexp"
	"testing"
)

// Bare is a workload's document without the scheduler's handle on it, so that those of two schedulers can be compared:
// ids and times are made equal, and what names the job, its hosts, the scheduler's own word for its state, and RUN,
// which two sites have in two places, is left out. So is version, which depends on when it was looked.
func Bare(t testing.TB, text string) Doc {
	t.Helper()
	for pattern, word := range map[string]string{
		`wl_[0-9a-f]{12}`:                       "wl",
		`alloc_[0-9a-f]{12}`:                    "alloc",
		`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`:  "TIME",
		`(rank [0-9]+) on [A-Za-z0-9][^" :;,]*`: "$1 on HOST",
		`("output": *")[^"]*/([^"/]+)"`:         `${1}DIR/$2"`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, word)
	}
	d := ParseDoc(t, text)
	strip(map[string]any(d))
	return d
}

func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"job", "job_name", "hosts", "host", "scheduler_state", "run", "version"} {
			delete(v, name)
		}
		for _, inner := range v {
			strip(inner)
		}
	case []any:
		for _, inner := range v {
			strip(inner)
		}
	}
}
