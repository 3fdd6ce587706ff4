package rig

import (
	"encoding/json"
	"testing"
)

// Doc is a JSON object that a program printed, read without the program's own types.
type Doc map[string]any

// ParseDoc reads exactly one object.
func ParseDoc(t testing.TB, text string) Doc {
	t.Helper()
	var d Doc
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("not one JSON object: %v\n%s", err, text)
	}
	return d
}

// at walks down to a member; nil where it isn't.
func (d Doc) at(path []string) any {
	var v any = map[string]any(d)
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// Text is a string member; "" where it isn't there or no string.
func (d Doc) Text(path ...string) string {
	s, _ := d.at(path).(string)
	return s
}

// Int is a whole number; -1 where it isn't there.
func (d Doc) Int(path ...string) int {
	f, ok := d.at(path).(float64)
	if !ok {
		return -1
	}
	return int(f)
}

// List is an array's members.
func (d Doc) List(path ...string) []any {
	l, _ := d.at(path).([]any)
	return l
}

// Phase is that of a workload's document.
func (d Doc) Phase() string { return d.Text("phase") }

// Over tells whether a workload's document shows a final phase.
func (d Doc) Over() bool {
	switch d.Phase() {
	case "COMPLETED", "FAILED", "CANCELLED", "LOST":
		return true
	}
	return false
}

// String is the document as text, for messages.
func (d Doc) String() string {
	text, err := json.MarshalIndent(map[string]any(d), "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}
