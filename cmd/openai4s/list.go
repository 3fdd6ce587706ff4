package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/openai4s/hpc/gateway/api"
)

type listCommand struct {
	gatewayFlags
	All bool `help:"Everybody's workloads, for administrators of the site."`
}

func (listCommand) Help() string {
	return `Example:

    openai4s list`
}

func (c *listCommand) Run(a *app) error {
	return a.withList(c.gatewayFlags, c.All, func(_ *connection, found []api.Workload) error {
		if a.json {
			if found == nil {
				found = []api.Workload{}
			}
			return a.print(struct {
				Workloads []api.Workload `json:"workloads"`
			}{found})
		}
		return a.showList(found)
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
