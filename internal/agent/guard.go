package agent

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// A guard is a second, idle process of the agent's program that ends the command and everything below it if the agent
// itself is killed: not every scheduler finds what a killed task leaves behind. It holds one end of a pipe; a word on
// it means that all is well, its end without one that the agent is gone.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// guardVariable marks the command's processes, those in sessions of their own too, for its guard. Its value is no secret.
const guardVariable = "OPENAI4S_TASK"

func startGuard(group int, task string) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	defer r.Close()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"openai4s-agent", "guard", strconv.Itoa(group), task}, Stdin: r,
		Env: []string{"GOMAXPROCS=1"}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	return &guard{cmd: cmd, pipe: w}, nil
}

// release lets the guard go: nothing of the command is left.
func (g *guard) release() {
	if g == nil {
		return
	}
	_, _ = g.pipe.Write([]byte{'.'}) // a guard that is gone has nothing to be told
	g.pipe.Close()
	_ = g.cmd.Wait()
}

func (g *guard) pid() int {
	if g == nil {
		return 0
	}
	return g.cmd.Process.Pid
}

// guardPatience bounds how long the guard goes on ending what comes anew.
const guardPatience = 10 * time.Second

// GuardCommand is the guard: guard GROUP TASK, with the pipe as standard input.
func GuardCommand(args []string, stdin io.Reader, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "openai4s-agent: guard is for the agent itself")
		return exitUsage
	}
	group, err := strconv.Atoi(args[0])
	if err != nil || group < 2 || args[1] == "" {
		fmt.Fprintln(stderr, "openai4s-agent: guard is for the agent itself")
		return exitUsage
	}
	// The scheduler signals every process of a step; the guard stays for as long as its agent.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	var word [1]byte
	if n, _ := stdin.Read(word[:]); n == 1 {
		return 0
	}
	mark := []byte(guardVariable + "=" + args[1])
	for end := time.Now().Add(guardPatience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		groupGone := syscall.Kill(-group, syscall.SIGKILL) != nil
		left := 0
		for _, p := range processes() {
			if !p.ended && marked(p.pid, mark) {
				left++
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		if groupGone && left == 0 {
			return 0
		}
	}
	return 1
}

// marked tells whether a process of this user carries the mark in its environment. Others' can't be read.
func marked(pid int, mark []byte) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(v, mark) {
			return true
		}
	}
	return false
}
