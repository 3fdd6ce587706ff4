package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/openai4s/hpc/internal/daemon"
)

type pinCmd struct{}

// Run prints the pin.
func (pinCmd) Run(a *app) error {
	o, err := a.options()
	if err != nil {
		return err
	}
	pin, err := daemon.Pin(o.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &failure{exitFailed, err, "start the daemon once: it makes its key"}
	case errors.Is(err, fs.ErrPermission):
		return &failure{exitFailed, err, "run this as the daemon's user, or read the pin in its log"}
	case err != nil:
		return err
	}
	_, err = fmt.Fprintln(a.stdout, pin)
	return err
}
