package agent

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// exitUsage is the launcher's exit code where it could start nothing: like a remote shell's own failure.
const exitUsage = 255

// exitUnended stands for a rank that was ended by the launcher and so has no code of its own.
const exitUnended = 1

// Launch starts one process per rank on the hosts of an allocation, for schedulers whose own launcher keeps exit
// codes to itself. It knows nothing of the scheduler but a node file and a program like rsh.
type Launch struct {
	Nodes        int
	RanksPerNode int
	Hosts        []string      // lines of the node file; a host may stand there several times, in any order
	Remote       []string      // like rsh: called with a host, a program and its arguments; ends with the program's code
	Command      []string      // the program on every host; its rank is told by flags appended to it
	Stop         []string      // run on the hosts of the ranks that are left after a bad exit, to warn them; nil: nobody is warned
	Output       string        // a file for each rank, absolute, %r being the rank and %% a percent sign; "" leaves output where Remote puts it
	ExitFile     string        // appears once the gang's end is decided; "" for none
	Grace        time.Duration // between that, a bad exit or a TERM, and the end of the ranks that are still there
	Poll         time.Duration // how often ExitFile is looked for
	Stdout       io.Writer
	Stderr       io.Writer
}

// place of a rank.
type place struct {
	rank, local, node int
	host              string
}

// places lays the ranks out by blocks, in the order in which hosts first stand in the node file. A host that
// stands for several nodes (a packed allocation) gets the ranks of all of them.
func places(lines []string, nodes, ranksPerNode int) ([]place, error) {
	var hosts []string
	share := map[string]int{}
	for _, h := range lines {
		if share[h] == 0 {
			hosts = append(hosts, h)
		}
		share[h]++
	}
	size := nodes * ranksPerNode
	switch {
	case len(hosts) == nodes:
		for h := range share {
			share[h] = ranksPerNode
		}
	case len(lines) == size:
	case len(lines) == nodes:
		for h := range share {
			share[h] *= ranksPerNode
		}
	default:
		return nil, fmt.Errorf("the node file names %d hosts in %d lines, which is neither %d nodes nor %d ranks", len(hosts), len(lines), nodes, size)
	}
	var out []place
	for n, h := range hosts {
		for l := range share[h] {
			out = append(out, place{rank: len(out), local: l, node: n, host: h})
		}
	}
	return out, nil
}

// shielded runs a remote shell that doesn't feel TERM: a scheduler sends it to every process of the job, and a
// remote shell that died of it could not tell how its rank ended. KILL still ends it.
const shielded = `trap "" TERM INT; exec "$@"`

// redirected runs a rank with its output in a file of its own.
const redirected = `mkdir -p "${0%/*}"; exec "$@" >>"$0" 2>&1`

func (l Launch) argv(p place) []string {
	argv := append([]string{"/bin/sh", "-c", shielded, "sh"}, l.Remote...)
	argv = append(argv, p.host)
	if l.Output != "" {
		argv = append(argv, "/bin/sh", "-c", redirected, strings.NewReplacer("%%", "%", "%r", strconv.Itoa(p.rank)).Replace(l.Output))
	}
	argv = append(argv, l.Command...)
	return append(argv,
		"--rank", strconv.Itoa(p.rank), "--local-rank", strconv.Itoa(p.local), "--node-rank", strconv.Itoa(p.node), "--host", p.host)
}

// started is the remote shell of a rank that runs.
type started struct {
	cmd  *exec.Cmd
	host string
}

// rankEnd is how one rank's remote shell ended.
type rankEnd struct {
	place
	code int
}

// Run starts all ranks at once and returns when all have ended, or Grace after one ended badly (the others are warned
// by Stop then), the exit file appeared or ctx was done: then the remote shells that are left are killed (one to a lost host never ends by
// itself), and the scheduler ends their ranks with the job. The code is the largest of all ranks'.
func (l Launch) Run(ctx context.Context) (int, error) {
	ranks, err := places(l.Hosts, l.Nodes, l.RanksPerNode)
	if err != nil {
		return exitUsage, err
	}
	ends := make(chan rankEnd)
	running := map[int]started{}
	failed := 0
	for _, p := range ranks {
		argv := l.argv(p)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = l.Stdout, l.Stderr
		if err := cmd.Start(); err != nil {
			l.say("rank %d on %s could not be started: %v", p.rank, p.host, err)
			failed = exitUsage
			break
		}
		running[p.rank] = started{cmd, p.host}
		go func() {
			_ = cmd.Wait() // the code says it all
			ends <- rankEnd{p, exitCode(cmd.ProcessState)}
		}()
	}
	return l.await(ctx, running, ends, failed), nil
}

// await collects the ranks' ends.
func (l Launch) await(ctx context.Context, running map[int]started, ends <-chan rankEnd, worst int) int {
	poll := time.NewTicker(l.Poll)
	defer poll.Stop()
	var (
		over   <-chan time.Time // the grace, once it runs
		killed bool
	)
	begin := func(why string) {
		if over != nil || killed || len(running) == 0 {
			return
		}
		if why != "" {
			l.say("%s; what is left ends within %s", why, l.Grace)
		}
		over = time.After(l.Grace)
	}
	var warnings warnings
	defer warnings.end()
	warned := false
	bad := func(why string) {
		begin(why)
		if !warned && !killed && len(running) > 0 {
			warned = true
			warnings.start(l, running)
		}
	}
	if worst != 0 {
		bad("not every rank was started")
	}
	told := ctx.Done()
	for len(running) > 0 {
		select {
		case e := <-ends:
			delete(running, e.rank)
			if killed {
				worst = max(worst, exitUnended)
				continue
			}
			worst = max(worst, e.code)
			if e.code != 0 {
				bad(fmt.Sprintf("rank %d on %s ended with code %d", e.rank, e.host, e.code))
			}
		case <-told:
			told = nil
			begin("the job is to end")
		case <-poll.C:
			if over == nil && !killed && l.decided() {
				begin("") // as a rule the rest are on their way out: only who is given up is worth a word in the job's output
			}
		case <-over:
			killed = true
			for _, s := range running {
				_ = s.cmd.Process.Kill() // it may have ended just now
			}
			l.say("still there, and given up: ranks %v", slices.Sorted(maps.Keys(running)))
			over = nil
		}
	}
	return worst
}

// decided looks for the exit file by listing its folder: a shared file system may go on denying for a while a name
// that it denied before.
func (l Launch) decided() bool {
	if l.ExitFile == "" {
		return false
	}
	dir, err := os.Open(filepath.Dir(l.ExitFile))
	if err != nil {
		return false
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(256)
		if slices.Contains(names, filepath.Base(l.ExitFile)) {
			return true
		}
		if err != nil {
			return false
		}
	}
}

func (l Launch) say(format string, args ...any) {
	fmt.Fprintf(l.Stderr, "openai4s: launcher: "+format+"\n", args...)
}

// exitCode is a shell's account of an end: 128 + the signal for one by a signal.
func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// LaunchCommand is the agent's subcommand "launch": flags, "--", and the program to start as every rank. It
// returns the exit code.
func LaunchCommand(args []string, stdout, stderr io.Writer) int {
	l := Launch{Stdout: stdout, Stderr: stderr}
	var nodeFile, remote string
	flags := flag.NewFlagSet("openai4s-agent launch", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&nodeFile, "node-file", "", "file that names the allocation's hosts, a line each")
	flags.StringVar(&remote, "remote", "", "program like rsh that runs a command on a host of the allocation")
	flags.IntVar(&l.Nodes, "nodes", 1, "nodes of the allocation")
	flags.IntVar(&l.RanksPerNode, "ranks-per-node", 1, "ranks on each node")
	flags.StringVar(&l.Output, "output", "", "file for each rank's output, %r being the rank")
	flags.StringVar(&l.ExitFile, "exit-file", "", "file that appears when the gang's end is decided")
	flags.DurationVar(&l.Grace, "grace", time.Minute, "how long ranks may stay after that")
	flags.DurationVar(&l.Poll, "poll", time.Second, "how often the exit file is looked for")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	l.Command, l.Remote = flags.Args(), []string{remote}
	if len(l.Command) > 1 {
		l.Stop = append([]string{l.Command[0], "stop"}, l.Command[1:]...)
	}
	if err := l.check(nodeFile, remote); err != nil {
		l.say("%v", err)
		return exitUsage
	}
	hosts, err := readNodeFile(nodeFile)
	if err != nil {
		l.say("%v", err)
		return exitUsage
	}
	l.Hosts = hosts
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	code, err := l.Run(ctx)
	if err != nil {
		l.say("%v", err)
	}
	return code
}

func (l Launch) check(nodeFile, remote string) error {
	switch {
	case nodeFile == "":
		return errors.New("--node-file names no file")
	case remote == "":
		return errors.New("--remote names no program")
	case len(l.Command) == 0:
		return errors.New("no program is named after the flags")
	case l.Nodes < 1 || l.RanksPerNode < 1 || l.Poll <= 0 || l.Grace < 0:
		return errors.New("--nodes, --ranks-per-node and --poll have to be positive")
	}
	return nil
}

// readNodeFile returns the hosts of a node file, empty lines left out.
func readNodeFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the node file: %w", err)
	}
	defer f.Close()
	var hosts []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		host := strings.TrimSpace(lines.Text())
		switch {
		case host == "":
		case strings.HasPrefix(host, "-"), strings.ContainsAny(host, " \t"):
			return nil, fmt.Errorf("the node file %s holds %q, which is no host", path, host)
		default:
			hosts = append(hosts, host)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the node file: %w", err)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("the node file %s names no host", path)
	}
	return hosts, nil
}
