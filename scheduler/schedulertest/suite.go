// Package schedulertest is the one suite for all Systems.
package schedulertest

import (
	"testing"

	"github.com/openai4s/hpc/scheduler"
)

// Run holds a System to the contract of scheduler.System.
func Run(t *testing.T, s scheduler.System) {}
