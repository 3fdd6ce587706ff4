package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/openai4s/hpc/internal/daemon"
)

type storeCheckCmd struct {
	JSON bool `help:"Print one JSON object."`
}

// Run checks the store. Problems are exit code 1.
func (c storeCheckCmd) Run(a *app) error {
	o, err := a.options()
	if err != nil {
		return err
	}
	report, err := daemon.CheckStore(o.StateDir)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := json.NewEncoder(a.stdout).Encode(report); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.stdout, "%s: schema %d, %d workloads (%d live), %d reports, %d bytes\n", o.StateDir, report.Schema, report.Workloads, report.Live, report.Reports, report.Bytes)
		for _, p := range report.Problems {
			fmt.Fprintln(a.stdout, "problem:", p)
		}
	}
	if len(report.Problems) > 0 {
		return &failure{exitFailed, errors.New("the store has problems"), "restore the last backup; a live workload whose record is lost must be cancelled by its owner"}
	}
	return nil
}

type storeCompactCmd struct{}

// Run compacts the store.
func (storeCompactCmd) Run(a *app) error {
	o, err := a.options()
	if err != nil {
		return err
	}
	c, err := daemon.CompactStore(o.StateDir)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%d bytes, before %d\n", c.After, c.Before)
	return nil
}

type storeBackupCmd struct {
	To string `required:"" help:"The file to make; it must not be there yet." type:"path" placeholder:"FILE"`
}

// Run copies the store.
func (c storeBackupCmd) Run(a *app) error {
	o, err := a.options()
	if err != nil {
		return err
	}
	n, err := daemon.BackupStore(context.Background(), o.StateDir, o.Control, c.To)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s: %d bytes\n", c.To, n)
	return nil
}
