package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/openai4s/hpc/scheduler"
)

// Where Slurm's warning may come before the ranks are there, the user is told.
func TestLateRanks(t *testing.T) {
	for _, c := range []struct {
		system           string
		walltime, before time.Duration
		told             bool
	}{
		{"slurm", time.Minute, 40 * time.Second, true},
		{"slurm", 2 * time.Minute, time.Minute + time.Second, true},
		{"slurm", 2 * time.Minute, time.Minute, false},
		{"slurm", time.Minute, 0, false},
		{"slurm", time.Hour, time.Minute, false},
		{"pbs", time.Minute, 40 * time.Second, false},
		{"local", time.Minute, 40 * time.Second, false},
	} {
		text := lateRanks(scheduler.Request{System: c.system, Walltime: c.walltime, Signal: scheduler.Signal{BeforeWalltime: c.before}})
		assert.Equal(t, c.told, text != "", "%+v: %s", c, text)
		if c.told {
			assert.Contains(t, text, c.before.String()+" before the end of "+c.walltime.String())
		}
	}
}
