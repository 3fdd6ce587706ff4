package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/openai4s/hpc/site"
)

// siteCommands are those about the site file.
type siteCommands struct {
	Show  siteShowCommand  `cmd:"" help:"Show the profiles as they take effect, the bound, and where each number comes from."`
	Check siteCheckCommand `cmd:"" help:"Check the site file."`
}

type siteShowCommand struct {
	Notes bool `help:"Say what each key is for."`
}

func (siteShowCommand) Help() string {
	return `Every key as it is in force and where its value comes from: a line of the file, a default, the environment, or
derived from others. No gateway and no scheduler is asked.

Example:

    openai4s site show --notes`
}

// siteShown is the answer of site show with --json.
type siteShown struct {
	Path     string         `json:"path"` // "" for the built-in local site
	SHA256   string         `json:"sha256"`
	Widest   widest         `json:"widest"`
	Bound    int            `json:"bound"` // on pending handshakes
	Settings []site.Setting `json:"settings"`
}

// widest is the widest allocation.
type widest struct {
	Ranks   int    `json:"ranks"`
	Profile string `json:"profile"`
}

func (c siteShowCommand) Run(a *app) error {
	s, err := a.loadSite()
	if err != nil {
		return err
	}
	settings := s.Explain()
	if a.json {
		ranks, profile := s.Widest()
		return a.print(siteShown{s.Path, s.SHA256, widest{ranks, profile}, s.HandshakeBound(), settings})
	}
	name := s.Path
	if s.IsBuiltin() {
		name = "built in: this machine alone, as no site file is named"
	}
	if _, err := fmt.Fprintf(a.out, "# %s\n", word(name)); err != nil {
		return fmt.Errorf("writing standard output: %w", err)
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, one := range settings {
		row := []string{one.Key, "= " + one.Value, one.Source}
		if c.Notes {
			row = append(row, one.Note)
		}
		for i := range row {
			row[i] = word(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing standard output: %w", err)
	}
	return nil
}
