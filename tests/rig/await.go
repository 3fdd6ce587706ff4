package rig

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"testing"
	"time"
)

// Patience is the usual bound of a wait: a real cluster under a busy machine takes its time.
const Patience = 90 * time.Second

// look is the pause between two looks.
const look = 50 * time.Millisecond

// Await looks again and again until a condition holds, and fails the test where it doesn't in time.
func Await(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %s for %s", within, what)
		}
	}
}

// tail is the end of a file, or why it can't be read.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const most = 6000
	if len(text) > most {
		return "…" + string(text[len(text)-most:])
	}
	return string(text)
}

// Random is that many random bytes in hex.
func Random(t testing.TB, bytes int) string {
	t.Helper()
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}
