// Package pbs drives OpenPBS and PBS Pro (19 and later) by their own commands: qsub, qstat, qselect, qdel and
// pbsnodes. It is the only package that runs them and reads what they print.
//
// Jobs are read from the text form of `qstat -f`: the JSON form prints only the first of several ids, and is
// broken by values that the text form survives. Server, queues and nodes, whose values administrators write, are
// read from JSON.
package pbs

import (
	"sync"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// Own limits of the commands. A server that swallows packets holds qsub and qstat for about 135 s before they say
// so: a submission waits for that answer, since a killed qsub may have left a job; a question does not.
const (
	submitLimit = 150 * time.Second
	askLimit    = 45 * time.Second
	cancelLimit = 60 * time.Second
)

// System runs the commands of one PBS site as the calling user.
type System struct {
	run     runner
	limits  limits
	submit  sync.Mutex // one submission of this process at a time
	version versionCheck

	mu        sync.Mutex
	noHistory bool // the last answer said that finished jobs are forgotten at once
}

type limits struct{ submit, ask, cancel time.Duration }

// New returns the System; commands maps a command's name to an absolute path where PATH won't do.
func New(commands map[string]string) *System {
	return &System{
		run:    runner{paths: commands},
		limits: limits{submit: submitLimit, ask: askLimit, cancel: cancelLimit},
	}
}

var (
	_ scheduler.System    = (*System)(nil)
	_ scheduler.Inspector = (*System)(nil)
)

func (s *System) historyOff() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noHistory
}

func (s *System) setHistoryOff(off bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noHistory = off
}
