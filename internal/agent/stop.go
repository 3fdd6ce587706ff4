package agent

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// warnings are the remote shells that tell the ranks which are left of a bad end. A scheduler whose own launcher isn't
// used ends them by KILL, with the job; this way they have their grace before.
type warnings []*exec.Cmd

// start runs Stop once on every host.
func (w *warnings) start(l Launch, running map[int]started) {
	told := map[string]bool{}
	for _, s := range running {
		if told[s.host] || l.Stop == nil {
			continue
		}
		told[s.host] = true
		argv := append(append(slices.Clone(l.Remote), s.host), l.Stop...)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = l.Stdout, l.Stderr
		if err := cmd.Start(); err != nil {
			l.say("the ranks on %s can't be told: %v", s.host, err)
			continue
		}
		*w = append(*w, cmd)
	}
}

// end takes their ends; one to a lost host never ends by itself.
func (w *warnings) end() {
	for _, cmd := range *w {
		_ = cmd.Process.Kill() // it has ended long ago, as a rule
		_ = cmd.Wait()
	}
}

// StopCommand is the agent's subcommand "stop": TERM to every rank on this host that was started with these arguments,
// which name its bundle and its job, and its own after them. It returns the exit code.
func StopCommand(args []string, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(stderr, "openai4s-agent: stop is for the launcher")
		return exitUsage
	}
	for _, p := range processes() {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline")
		if err != nil || p.ended {
			continue
		}
		// The program comes first, whatever its path.
		words := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")[1:]
		if len(words) > len(args) && slices.Equal(words[:len(args)], args) && words[len(args)] == "--rank" {
			_ = syscall.Kill(p.pid, syscall.SIGTERM) // it may have ended just now
		}
	}
	return 0
}
