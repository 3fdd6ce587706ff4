// Package daemon wires one gateway from one site; the daemon and the embedded gateway are this.
package daemon

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/site"
)

// Options of one run.
type Options struct {
	Site     site.Site
	System   scheduler.System
	StateDir string // locked; made 0700
	Control  string // path of the control socket
	Listen   string // agents' listener; "" : none
	Embedded bool   // one user's: stays while any workload is live
	Version  string
	Log      zerolog.Logger
}

// ErrLocked is returned by Run where another daemon holds the state folder.
var ErrLocked = errors.New("another daemon holds the state folder")

// Run serves until ctx ends; ready is called once everything listens. It returns the first failure.
func Run(ctx context.Context, o Options, ready func(Running)) error { return nil }

// Running is what ready is told.
type Running struct {
	Control string
	Address []string
	Idle    func() bool // no workload is live
}
