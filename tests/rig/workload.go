package rig

import (
	"fmt"
	"strings"
	"testing"
)

// Shell is a job file that runs a shell script on every rank. more is further lines of the file; a table in it comes
// last.
func Shell(nodes int, script, more string) string {
	return fmt.Sprintf("nodes = %d\ncommand = [\"sh\", \"-c\", '''%s''']\n%s\n", nodes, script, more)
}

// Submit submits a job file and returns the workload's id; anything but success fails the test.
func (u *User) Submit(t testing.TB, job string, flags ...string) string {
	t.Helper()
	ran := u.TrySubmit(t, job, flags...)
	if ran.Code != 0 {
		t.Fatalf("submit ended with %d\n%s", ran.Code, ran.Stderr)
	}
	return strings.TrimSpace(ran.Stdout)
}

// TrySubmit submits a job file under a name of its own.
func (u *User) TrySubmit(t testing.TB, job string, flags ...string) Ran {
	t.Helper()
	return u.Run(t, append(append([]string{"submit"}, flags...), u.JobFile(t, job))...)
}

// GoSubmit starts submit --wait in the background.
func (u *User) GoSubmit(t testing.TB, job string, flags ...string) *Background {
	t.Helper()
	return u.Go(t, append(append([]string{"submit", "--wait"}, flags...), u.JobFile(t, job))...)
}

// JobFile writes a job file in a folder of its own, which is its workdir.
func (u *User) JobFile(t testing.TB, job string) string {
	t.Helper()
	u.rig.jobs++
	return u.Write(t, fmt.Sprintf("job%d/job.toml", u.rig.jobs), job)
}

// Status is a workload's document.
func (u *User) Status(t testing.TB, id string) Doc {
	t.Helper()
	ran := u.Run(t, "status", "--json", id)
	if ran.Code != 0 {
		t.Fatalf("status of %s ended with %d\n%s%s", id, ran.Code, ran.Stdout, ran.Stderr)
	}
	return ran.Doc(t)
}

// AwaitPhase waits for a phase and returns the document that showed it. Another final phase fails the test.
func (u *User) AwaitPhase(t testing.TB, id, phase string) Doc {
	t.Helper()
	return u.AwaitStatus(t, id, phase, func(d Doc) bool {
		if d.Over() && d.Phase() != phase {
			t.Fatalf("%s was to become %s and ended as %s: %s", id, phase, d.Phase(), d)
		}
		return d.Phase() == phase
	})
}

// AwaitStatus waits for what a condition wants to see.
func (u *User) AwaitStatus(t testing.TB, id, what string, holds func(Doc) bool) Doc {
	t.Helper()
	var d Doc
	Await(t, Patience, fmt.Sprintf("%s to be %s", id, what), func() bool {
		d = u.Status(t, id)
		return holds(d)
	})
	return d
}

// AwaitEnd waits for any end.
func (u *User) AwaitEnd(t testing.TB, id string) Doc {
	t.Helper()
	return u.AwaitStatus(t, id, "over", Doc.Over)
}

// AwaitOnly waits until the user's only workload shows a phase and returns its id: for one that a command in the
// background submitted.
func (u *User) AwaitOnly(t testing.TB, phase string) string {
	t.Helper()
	id := u.only(t)
	u.AwaitPhase(t, id, phase)
	return id
}

// AwaitOnlyEnd waits for the end of the user's only workload.
func (u *User) AwaitOnlyEnd(t testing.TB) Doc {
	t.Helper()
	return u.AwaitEnd(t, u.only(t))
}

func (u *User) only(t testing.TB) (id string) {
	t.Helper()
	Await(t, Patience, "a workload", func() bool {
		if all := u.List(t); len(all) == 1 {
			id = all[0].Text("id")
		}
		return id != ""
	})
	return id
}

// List is what the user is shown of all their workloads, newest first.
func (u *User) List(t testing.TB) []Doc {
	t.Helper()
	ran := u.Run(t, "list", "--json")
	if ran.Code != 0 {
		t.Fatalf("list ended with %d\n%s%s", ran.Code, ran.Stdout, ran.Stderr)
	}
	var all []Doc
	for _, w := range ran.Doc(t).List("workloads") {
		d, _ := w.(map[string]any)
		all = append(all, d)
	}
	return all
}
