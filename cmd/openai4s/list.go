package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/openai4s/hpc/gateway/api"
)

type listCommand struct {
	gatewayFlags
	All   bool `help:"Everybody's workloads, for administrators of the site."`
	Limit int  `help:"At most this many, live ones first; 0 shows all live ones and the last 1000 that are over." default:"1000" placeholder:"N"`
}

func (listCommand) Help() string {
	return `Examples:

    openai4s list
    openai4s list --limit 20`
}

func (c *listCommand) Validate() error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit is %d; it must be a number of workloads, or 0 for all", c.Limit)
	}
	return nil
}

func (c *listCommand) Run(a *app) error {
	return a.withList(c.gatewayFlags, api.Which{All: c.All, Limit: c.Limit}, func(_ *connection, found api.List) error {
		if a.json {
			if found.Workloads == nil {
				found.Workloads = []api.Workload{}
			}
			return a.print(found)
		}
		if err := a.showList(found.Workloads); err != nil {
			return err
		}
		if shown := len(found.Workloads); shown < found.Total {
			a.note("%d of %s shown; --limit shows more", shown, count(found.Total, "workload"))
		}
		return nil
	})
}

// showList prints a table, or says on standard error that there is nothing.
func (a *app) showList(found []api.Workload) error {
	if len(found) == 0 {
		a.note("no workloads")
		return nil
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tNAME\tOWNER\tPROFILE\tSIZE\tPHASE\tREASON\tJOB\tAGE")
	for _, w := range found {
		job := "-"
		if w.Job.ID != "" {
			job = jobID(w).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", w.ID, dash(w.Name), dash(w.Owner), dash(w.Profile), w.Size, w.Phase,
			dash(string(w.Reason)), word(job), age(time.Since(w.CreatedAt)))
	}
	return t.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return word(s)
}

// age is a duration for people: its largest unit alone.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", max(d, 0)/time.Second)
}
