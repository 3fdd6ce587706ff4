package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exitUsage and exitNotStarted are the launcher's own exit codes, in the tradition of shells.
const (
	exitUsage      = 2
	exitNotStarted = 127
)

// launcher starts one process per rank.
type launcher struct {
	nodes        int
	ranksPerNode int
	output       string // "" : all ranks inherit the launcher's
	killDelay    time.Duration
	command      []string
}

// Launch starts one process per rank, like srun --kill-on-bad-exit=1, and returns the largest exit code, counting a
// signal as 128 more than its number. Its arguments:
//
//	--nodes=N --ranks-per-node=R [--output=PATTERN] [--kill-delay=DURATION] -- COMMAND [ARGUMENT…]
//
// Ranks go to the pretended nodes by blocks; each has OPENAI4S_RANK, OPENAI4S_LOCAL_RANK, OPENAI4S_NODE_RANK and
// OPENAI4S_NODENAME. A pattern gives each rank a file of its own: %r is its rank, %j the job's id. TERM, INT and
// WINCH are handed to the ranks. The first rank that fails ends the others.
func Launch(args []string) int {
	l, err := parseLaunch(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "openai4s: starting ranks: %v\n", err)
		return exitUsage
	}
	return l.run()
}

func parseLaunch(args []string) (launcher, error) {
	var l launcher
	f := flags("launcher")
	f.IntVar(&l.nodes, "nodes", 1, "")
	f.IntVar(&l.ranksPerNode, "ranks-per-node", 1, "")
	f.StringVar(&l.output, "output", "", "")
	f.DurationVar(&l.killDelay, "kill-delay", defaultKillDelay, "")
	if err := f.Parse(args); err != nil {
		return l, err
	}
	l.command = f.Args()
	switch {
	case len(l.command) == 0:
		return l, errors.New("no command is given")
	case l.nodes < 1 || l.ranksPerNode < 1 || l.nodes > maxNodes/l.ranksPerNode:
		return l, fmt.Errorf("%d nodes with %d ranks each can't be started", l.nodes, l.ranksPerNode)
	}
	return l, nil
}

func (l launcher) run() int {
	// The parent-death signal of a child comes when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0) // a killed script leaves no ranks behind

	// Being notified also gives the ranks the default action for INT, which a shell has its background commands ignore.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGWINCH)
	defer signal.Stop(signals)

	type end struct{ rank, code int }
	ended := make(chan end)
	live := map[int]*os.Process{}
	var kill <-chan time.Time
	largest := 0
	bad := func(code int) {
		largest = max(largest, code)
		if code == 0 || kill != nil {
			return
		}
		tell(live, unix.SIGTERM)
		kill = time.After(l.killDelay)
	}
	for rank := range l.nodes * l.ranksPerNode {
		cmd, err := l.start(rank)
		if err != nil {
			fmt.Fprintf(os.Stderr, "openai4s: starting rank %d: %v\n", rank, err)
			bad(exitNotStarted)
			break
		}
		live[rank] = cmd.Process
		go func() {
			_ = cmd.Wait() // its state says more than the error
			ended <- end{rank, exitCode(cmd.ProcessState)}
		}()
	}
	for len(live) > 0 {
		select {
		case e := <-ended:
			delete(live, e.rank)
			bad(e.code)
		case s := <-signals:
			tell(live, s)
			if s == unix.SIGTERM && kill == nil {
				kill = time.After(l.killDelay)
			}
		case <-kill:
			tell(live, unix.SIGKILL)
		}
	}
	return largest
}

// start starts one rank in a process group of its own.
func (l launcher) start(rank int) (*exec.Cmd, error) {
	node := rank / l.ranksPerNode
	cmd := exec.Command(l.command[0], l.command[1:]...)
	cmd.Env = append(os.Environ(),
		"OPENAI4S_RANK="+strconv.Itoa(rank),
		"OPENAI4S_LOCAL_RANK="+strconv.Itoa(rank%l.ranksPerNode),
		"OPENAI4S_NODE_RANK="+strconv.Itoa(node),
		"OPENAI4S_NODENAME="+NodeName(node),
	)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // files: the ranks write into them without a pipe between
	if l.output != "" {
		path := expand(l.output, os.Getenv("OPENAI4S_JOB_ID"), strconv.Itoa(rank))
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
		if err != nil {
			return nil, fmt.Errorf("opening its output: %w", err)
		}
		defer file.Close()
		cmd.Stdout, cmd.Stderr = file, file
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

func tell(live map[int]*os.Process, s os.Signal) {
	for _, p := range live {
		_ = p.Signal(s) // it may be gone already
	}
}

func exitCode(p *os.ProcessState) int {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}
