package rig

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// settle is how long what ends by itself may take to be gone: a scheduler's own daemons sweep up after a job.
const settle = 20 * time.Second

// requireNothingLeft waits for the rig's last traces to go, fails the test where some stay, and removes them.
func (r *Rig) requireNothingLeft(t testing.TB) {
	t.Helper()
	var left []string
	deadline := time.NewTimer(settle)
	defer deadline.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if left = r.Leftovers(t); len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
			continue
		case <-deadline.C:
		}
		break
	}
	t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	r.sweep(t)
}

// RequireNothingMade fails the test unless a user's refused submission left nothing: no RUN, no job, nothing live.
func (u *User) RequireNothingMade(t testing.TB) {
	t.Helper()
	runs, err := filepath.Glob(filepath.Join(u.Home, ".openai4s", "run", "wl_*"))
	if err != nil {
		t.Fatal(err)
	}
	if jobs := u.rig.Jobs(t); len(runs)+len(jobs) > 0 {
		t.Fatalf("a refusal left %v and the jobs %v", runs, jobs)
	}
	for _, w := range u.List(t) {
		if !w.Over() {
			t.Fatalf("a refusal left a live workload: %s", w)
		}
	}
}

// Leftovers lists what of the rig is still there: scheduler jobs, processes, sockets, locked files.
func (r *Rig) Leftovers(t testing.TB) []string {
	t.Helper()
	var left []string
	for _, job := range r.Jobs(t) {
		left = append(left, "scheduler job "+job)
	}
	for _, p := range r.Processes() {
		left = append(left, "process "+p.String())
	}
	left = append(left, r.sockets(t)...)
	return append(left, r.locks(t)...)
}

// Process is one that names the rig's folder.
type Process struct {
	PID     int
	UID     int
	Command string
}

func (p Process) String() string { return fmt.Sprintf("%d of uid %d: %s", p.PID, p.UID, p.Command) }

// Processes finds those whose command line, environment or working folder names the rig's folder, zombies apart.
func (r *Rig) Processes() []Process {
	var found []Process
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process may go while it is looked at: what can't be read isn't there.
		command, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		cwd, _ := os.Readlink(dir + "/cwd")
		if len(command) == 0 || !bytes.Contains(command, []byte(r.Dir)) && !bytes.Contains(environ, []byte(r.Dir)) && !strings.Contains(cwd, r.Dir) {
			continue
		}
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		found = append(found, Process{PID: pid, UID: int(info.Sys().(*syscall.Stat_t).Uid), Command: strings.TrimSpace(string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))})
	}
	return found
}

// Jobs lists the ids of the scheduler's jobs whose working folder is inside the rig and that aren't over.
func (r *Rig) Jobs(t testing.TB) []string {
	t.Helper()
	switch {
	case r.scheduler() == "pbs" && r.options.PBS != nil:
		return r.pbsJobs(t)
	case r.scheduler() != "slurm" || r.options.Cluster == nil:
		return nil
	}
	cmd := exec.Command("squeue", "--noheader", "--states=all", "--format=%i|%T|%Z")
	cmd.Env = append(os.Environ(), "SLURM_CONF="+r.Conf(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("asking for the rig's jobs: %v", err)
	}
	var ids []string
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 3)
		if len(f) == 3 && strings.HasPrefix(f[2], r.Dir) && unfinished[f[1]] {
			ids = append(ids, f[0])
		}
	}
	return ids
}

var unfinished = map[string]bool{"PENDING": true, "RUNNING": true, "SUSPENDED": true, "CONFIGURING": true, "COMPLETING": true,
	"STOPPED": true, "SIGNALING": true, "STAGE_OUT": true, "RESIZING": true, "REQUEUED": true, "REQUEUE_HOLD": true, "SPECIAL_EXIT": true}

// sockets finds open TCP sockets of the agents' port, those that only wait for their last packets apart.
func (r *Rig) sockets(t testing.TB) []string {
	t.Helper()
	const timeWait = "06"
	var open []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // no IPv6
		}
		port := fmt.Sprintf(":%04X", r.Port)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 3 && f[3] != timeWait && (strings.HasSuffix(f[1], port) || strings.HasSuffix(f[2], port)) {
				open = append(open, fmt.Sprintf("socket %s to %s, state %s", f[1], f[2], f[3]))
			}
		}
	}
	if _, err := os.Stat(r.control()); err == nil {
		open = append(open, "control socket "+r.control())
	}
	return open
}

// locks finds files of the rig that somebody holds a lock on.
func (r *Rig) locks(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{} // inode
	for line := range strings.Lines(string(text)) {
		for _, f := range strings.Fields(line) {
			if part := strings.Split(f, ":"); len(part) == 3 {
				held[part[2]] = true
			}
		}
	}
	var locked []string
	_ = filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error { // what goes meanwhile isn't locked
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() && held[fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino)] {
			locked = append(locked, "lock on "+path)
		}
		return nil
	})
	return locked
}

// sweep ends what a failed test left.
func (r *Rig) sweep(t testing.TB) {
	t.Helper()
	for _, id := range r.Jobs(t) {
		if r.options.PBS != nil {
			r.pbsDelete(t, id)
			continue
		}
		cmd := exec.Command("scancel", id)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+r.Conf())
		if err := cmd.Run(); err != nil {
			t.Logf("cancelling job %s: %v", id, err)
		}
	}
	for _, p := range r.Processes() {
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // gone by itself, then
	}
	Await(t, settle, "what was left to be gone", func() bool { return len(r.Jobs(t)) == 0 && len(r.Processes()) == 0 })
}
