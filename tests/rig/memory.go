package rig

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// Memory is what a process has in its writable memory, for tests that must know a secret that is kept nowhere else.
func Memory(t testing.TB, pid int) []byte {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	var all []byte
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") {
			continue
		}
		part, err := io.ReadAll(io.NewSectionReader(memory, from, to-from))
		if err != nil && len(part) == 0 {
			continue // mapped and never touched
		}
		all = append(all, part...)
	}
	return all
}
