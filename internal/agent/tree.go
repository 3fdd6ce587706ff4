package agent

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one row of the process table.
type process struct {
	pid, parent int
	ended       bool // a zombie
}

// processes reads the table. What can't be read has ended meanwhile.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name, in parentheses, may hold blanks and parentheses itself.
		i := bytes.LastIndexByte(stat, ')')
		if i < 0 {
			continue
		}
		fields := strings.Fields(string(stat[i+1:]))
		if len(fields) < 2 {
			continue
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		all = append(all, process{pid: pid, parent: parent, ended: fields[0] == "Z" || fields[0] == "X"})
	}
	return all
}

// everyBelow lists every living process below this one, those that called setsid too: the agent is a child
// subreaper, so that orphans come to it.
func everyBelow(except int) []int {
	if childless(except) {
		return nil // orphans come to us: no child, nothing below
	}
	children := map[int][]process{}
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p)
	}
	var below []int
	todo := []int{os.Getpid()}
	for len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, c := range children[pid] {
			if !c.ended && c.pid != except {
				below = append(below, c.pid)
			}
			todo = append(todo, c.pid)
		}
	}
	return below
}

// reap takes the ends of orphans that came to this process. The command and its guard are waited for by their owner.
func reap(except ...int) {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == nil && info.Signo == 0 {
		return // nothing has ended: the table need not be read
	}
	self := os.Getpid()
	for _, p := range processes() {
		if p.ended && p.parent == self && !slices.Contains(except, p.pid) {
			_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil) // somebody else may have been faster
		}
	}
}

// childless tells whether this process has no child but one, living or ended. It reads a few small files where the
// whole process table of a large node is many; false where they don't tell.
func childless(except int) bool {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false
	}
	for _, t := range tasks {
		children, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if err != nil {
			return false
		}
		for _, pid := range strings.Fields(string(children)) {
			if pid != strconv.Itoa(except) {
				return false
			}
		}
	}
	return len(tasks) > 0
}
