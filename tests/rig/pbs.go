package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai4s/hpc/tests/fakepbs"
)

// pbsRecords are the texts of qstat -f about the rig's jobs, folding undone; finished ones too with -x.
func (r *Rig) pbsRecords(t testing.TB, flags ...string) []string {
	t.Helper()
	out, err := exec.Command(filepath.Join(r.options.PBS.Bin, "qstat"), append(flags, "-f")...).Output()
	if err != nil {
		t.Fatalf("asking for the rig's jobs: %v", err)
	}
	var records []string
	for record := range strings.SplitSeq(strings.ReplaceAll(string(out), "\n\t", ""), "\n\n") {
		if strings.Contains(record, "PBS_O_WORKDIR="+r.Dir) {
			records = append(records, record)
		}
	}
	return records
}

// pbsJobs lists the ids of jobs that aren't over.
func (r *Rig) pbsJobs(t testing.TB) []string {
	t.Helper()
	var ids []string
	for _, record := range r.pbsRecords(t) {
		first, _, _ := strings.Cut(strings.TrimSpace(record), "\n")
		ids = append(ids, strings.TrimPrefix(first, "Job Id: "))
	}
	return ids
}

// JobRecord is what PBS says of a job, by attribute.
func (r *Rig) JobRecord(t testing.TB, id string) map[string]string {
	t.Helper()
	for _, record := range r.pbsRecords(t, "-x") {
		first, rest, _ := strings.Cut(strings.TrimSpace(record), "\n")
		if first != "Job Id: "+id {
			continue
		}
		fields := map[string]string{}
		for line := range strings.Lines(rest) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
				fields[name] = value
			}
		}
		return fields
	}
	t.Fatalf("PBS has no job %s of this rig", id)
	return nil
}

// pbsDelete ends a job as the server's manager may.
func (r *Rig) pbsDelete(t testing.TB, id string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(r.options.PBS.Bin, "qdel"), "-W", "force", id)
	cmd.Env = append(os.Environ(), fakepbs.UserVariable+"="+fakepbs.Manager)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Logf("deleting job %s: %v: %s", id, err, text)
	}
}
