package rig

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// dump shows what a failed test left to read: logs, output, RUN, and the scheduler's view.
func (r *Rig) dump(t testing.TB) {
	t.Helper()
	if r.Daemon != nil {
		t.Logf("daemon's log:\n%s", tail(r.Daemon.LogFile()))
		t.Logf("audit log:\n%s", tail(r.Daemon.AuditFile()))
	}
	for _, u := range r.users {
		_ = filepath.WalkDir(u.Home, func(path string, d fs.DirEntry, err error) error { // as much as can be read
			if err != nil || d.IsDir() {
				return nil
			}
			switch {
			case strings.HasSuffix(path, ".out"):
				t.Logf("%s:\n%s", path, tail(path))
			case strings.Contains(path, "/run/wl_"):
				t.Logf("%s: %s", path, describe(path, d))
			}
			return nil
		})
	}
	for _, p := range r.Processes() {
		t.Logf("process %s", p)
	}
	if r.options.PBS != nil {
		for _, record := range r.pbsRecords(t, "-x") {
			t.Logf("pbs: %s", record)
		}
	}
	c := r.options.Cluster
	if c == nil {
		return
	}
	cmd := exec.Command("scontrol", "show", "job", "--oneliner")
	cmd.Env = append(os.Environ(), "SLURM_CONF="+c.Conf)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("scontrol show job: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, r.Dir) {
			t.Logf("slurm: %s", line)
		}
	}
}

func describe(path string, d fs.DirEntry) string {
	if target, err := os.Readlink(path); err == nil {
		return "-> " + target
	}
	info, err := d.Info()
	if err != nil {
		return err.Error()
	}
	return info.Mode().String()
}
