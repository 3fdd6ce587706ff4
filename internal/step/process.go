package step

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// command is a process in a group of its own. The step is the reaper of whatever it leaves behind: as PID 1 by
// nature, else as child subreaper.
type command struct {
	argv []string
	dir  string
	env  []string
	line func(stderr bool, text string) // takes each line of output
}

// result of a command: its code, and the signal that killed it, if one did.
type exited struct {
	code   int
	signal syscall.Signal // 0: it exited by itself
}

// run starts the command and returns when it and everything it started are gone and its output is read. Once ctx
// ends, the group gets TERM, and grace later KILL.
func (c command) run(ctx context.Context, grace time.Duration) (exited, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return exited{}, transientf("becoming the reaper of the command's children: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return exited{}, transientf("opening %s: %w", os.DevNull, pathless(err))
	}
	defer null.Close()
	outs, err := newCapture(c.line)
	if err != nil {
		return exited{}, transientf("making the command's streams: %w", err)
	}
	defer outs.close()
	program, err := lookPath(c.argv[0], c.dir, c.env)
	if err != nil {
		return exited{}, permanentf("finding the command %q: %w", c.argv[0], err)
	}
	p, err := os.StartProcess(program, c.argv, &os.ProcAttr{
		Dir: c.dir, Env: c.env, Files: []*os.File{null, outs.write[0], outs.write[1]},
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return exited{}, permanentf("starting the command %q: %w", c.argv[0], pathless(err))
	}
	pid := p.Pid
	_ = p.Release() // reaped below with everything else, not by the handle
	outs.start()

	over := make(chan struct{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		_ = unix.Kill(-pid, unix.SIGTERM) // gone already is as good
		select {
		case <-over:
		case <-time.After(grace):
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}()
	status, err := reapUntil(pid)
	close(over)
	<-killed
	sweep(pid, sweepWait)
	outs.wait(drainWait)
	if err != nil {
		return exited{}, transientf("waiting for the command: %w", err)
	}
	if status.Signaled() {
		return exited{code: 128 + int(status.Signal()), signal: status.Signal()}, nil
	}
	return exited{code: status.ExitStatus()}, nil
}

// reapUntil reaps every child until pid itself ended.
func reapUntil(pid int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return status, err
		case got == pid && (status.Exited() || status.Signaled()):
			return status, nil
		}
	}
}

// sweep ends what the command left: its group, then children that left the group and came to us as their reaper,
// until there are none or d is over: a process that can't be killed mustn't cost the run its marker.
func sweep(group int, d time.Duration) {
	_ = unix.Kill(-group, unix.SIGKILL)
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, pid := range children() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.ECHILD) {
			return
		}
		if pid == 0 {
			time.Sleep(sweepPause)
		}
	}
}

// children lists the direct children of this process by /proc/PID/stat.
func children() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	self := strconv.Itoa(os.Getpid())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid …; a name may hold blanks and brackets, so count from the last one.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == self && fields[0] != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// lookPath finds a program as a shell in dir with env would.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // StartProcess resolves it in dir
	}
	search := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	for folder := range strings.SplitSeq(search, ":") {
		if folder == "" || folder[0] != '/' {
			continue // a relative folder would depend on where we stand
		}
		path := folder + "/" + name
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", os.ErrNotExist
}

// capture reads the two streams of a command line by line.
type capture struct {
	read, write [2]*os.File
	line        func(stderr bool, text string)
	done        chan struct{}
}

func newCapture(line func(bool, string)) (*capture, error) {
	c := &capture{line: line, done: make(chan struct{}, 2)}
	for i := range c.read {
		var err error
		if c.read[i], c.write[i], err = os.Pipe(); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *capture) start() {
	for i := range c.read {
		_ = c.write[i].Close()
		go func() {
			defer func() { c.done <- struct{}{} }()
			eachLine(c.read[i], func(text string) { c.line(i == 1, text) })
		}()
	}
}

// wait lets both streams end; after d somebody outside our reach must hold them, and they are closed.
func (c *capture) wait(d time.Duration) {
	late := time.After(d)
	for left := 2; left > 0; {
		select {
		case <-c.done:
			left--
		case <-late:
			c.close()
			late = nil
		}
	}
}

func (c *capture) close() {
	for i := range c.read {
		for _, f := range []*os.File{c.read[i], c.write[i]} {
			if f != nil {
				_ = f.Close()
			}
		}
	}
}

// eachLine hands over lines, cut at maxStreamLine; the rest of a longer line is dropped.
func eachLine(r io.Reader, line func(string)) {
	var pending []byte
	full := false
	block := make([]byte, 32<<10)
	for {
		n, err := r.Read(block)
		for _, b := range block[:n] {
			switch {
			case b == '\n':
				line(string(pending))
				pending, full = pending[:0], false
			case !full:
				pending = append(pending, b)
				full = len(pending) == maxStreamLine
			}
		}
		if err != nil {
			if len(pending) > 0 {
				line(string(pending))
			}
			return
		}
	}
}
