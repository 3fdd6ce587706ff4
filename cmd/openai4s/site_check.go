package main

import (
	"fmt"

	"github.com/openai4s/hpc/site"
)

type siteCheckCommand struct{}

func (siteCheckCommand) Help() string {
	return `Looks at the file and at what it names on this host. Ends with 81 if it can't be used or no job can work with it, and
with 0 otherwise, warnings or not.

Example:

    openai4s --site /etc/openai4s/site.toml site check`
}

// siteChecked is the answer of site check with --json.
type siteChecked struct {
	Path     string         `json:"path"` // "" for the built-in local site
	OK       bool           `json:"ok"`   // no finding is an error
	Findings []site.Finding `json:"findings"`
}

func (siteCheckCommand) Run(a *app) error {
	s, err := a.loadSite()
	if err != nil {
		return err
	}
	checked := siteChecked{Path: s.Path, OK: true, Findings: s.Lint()}
	for _, f := range checked.Findings {
		checked.OK = checked.OK && f.Severity != site.SeverityError
	}
	if checked.Findings == nil {
		checked.Findings = []site.Finding{}
	}
	if err := a.showChecked(checked); err != nil {
		return err
	}
	if !checked.OK {
		return &ended{exitBadFile}
	}
	return nil
}

func (a *app) showChecked(c siteChecked) error {
	if a.json {
		return a.print(c)
	}
	name := c.Path
	if name == "" {
		name = "the built-in site"
	}
	for _, f := range c.Findings {
		where := name
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d", name, f.Line)
		}
		text := fmt.Sprintf("%s: %s: %s: %s\n", word(where), f.Severity, word(f.Key), word(f.Text))
		if f.Remedy != "" {
			text += "    " + word(f.Remedy) + "\n"
		}
		if _, err := fmt.Fprint(a.out, text); err != nil {
			return fmt.Errorf("writing standard output: %w", err)
		}
	}
	if len(c.Findings) == 0 {
		a.note("%s: nothing to complain about", name)
	}
	return nil
}
