package fakepbs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// process as /proc shows it.
type process struct{ pid, parent, session int }

func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
		f := strings.Fields(rest)
		if len(f) < 4 {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		session, _ := strconv.Atoi(f[3])
		out = append(out, process{pid, parent, session})
	}
	return out
}

func signalSession(session int, sig syscall.Signal) {
	for _, p := range processes() {
		if p.session == session {
			_ = syscall.Kill(p.pid, sig) // it may have ended just now
		}
	}
}

// endTree kills a process and all its descendants, whatever session they are in.
func endTree(root int) {
	all := processes()
	doomed := map[int]bool{root: true}
	for range all { // parents may stand behind their children
		for _, p := range all {
			if doomed[p.parent] || p.session == root {
				doomed[p.pid] = true
			}
		}
	}
	for pid := range doomed {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// endAll kills every process that has a job's cookie in its environment.
func endAll(cookie string) {
	mark := []byte("PBS_JOBCOOKIE=" + cookie)
	for _, p := range processes() {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "environ"))
		if err == nil && bytes.Contains(env, mark) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}
