//go:build !pbsfake

package breakage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/openai4s/hpc/tests/rig"
)

// hasVariable tells whether a process was given a variable with that number.
func hasVariable(p rig.Process, name string, value int) bool {
	environ, _ := os.ReadFile(filepath.Join("/proc", fmt.Sprint(p.PID), "environ")) // it may be gone
	for v := range strings.SplitSeq(string(environ), "\x00") {
		if v == fmt.Sprintf("%s=%d", name, value) {
			return true
		}
	}
	return false
}
