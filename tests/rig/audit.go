package rig

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// Admissions are the times of the first and the last accepted rank of an allocation, by the audit log.
func (d *Daemon) Admissions(t testing.TB, allocation string) (first, last time.Time) {
	t.Helper()
	f, err := os.Open(d.AuditFile())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var entry struct {
			Time       time.Time
			Event      string
			Verdict    string
			Allocation string
		}
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Fatalf("reading the audit log: %v", err)
		}
		if entry.Event != "dial_in" || entry.Verdict != "accepted" || entry.Allocation != allocation {
			continue
		}
		if first.IsZero() {
			first = entry.Time
		}
		last = entry.Time
	}
	if first.IsZero() {
		t.Fatalf("the audit log has no rank of %s", allocation)
	}
	return first, last
}
