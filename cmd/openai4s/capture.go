package main

import "strings"

// capture collects output for --json.
type capture struct{ strings.Builder }

// or returns where lines go: into the capture for --json, else to standard output.
func (c *capture) or(a *app) *lineWriter {
	if a.json {
		return &lineWriter{to: c}
	}
	return &lineWriter{to: a.out}
}
