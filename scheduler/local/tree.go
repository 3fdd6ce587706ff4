package local

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// signalTree sends a signal to every descendant of this process, whatever group or session it moved to. As this
// process is a child subreaper, nothing that a job starts leaves the tree.
func signalTree(sig unix.Signal) {
	for _, pid := range descendants(os.Getpid()) {
		_ = unix.Kill(pid, sig) // it may be gone already
		if sig == unix.SIGTERM {
			_ = unix.Kill(pid, unix.SIGCONT) // a stopped process would never see it
		}
	}
}

// descendants lists the process ids below root, parents first.
func descendants(root int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	tree := children[root]
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// parentOf reads a process's parent: the second field behind the command's name, which is in parentheses and may
// hold any character.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
