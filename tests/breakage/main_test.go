package breakage_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait for something to end: many of them at a time fit on few cores.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(rig.Main(m, setUp))
}

// agents finds the rig's agents.
func agents(r *rig.Rig) []rig.Process {
	return slices.DeleteFunc(matching(r, "openai4s-agent"), isLauncher)
}

func matching(r *rig.Rig, words string) []rig.Process {
	var found []rig.Process
	for _, p := range r.Processes() {
		// The launcher names the agent in its arguments.
		program, _, _ := strings.Cut(p.Command, " ")
		if strings.Contains(program, words) {
			found = append(found, p)
		}
	}
	return found
}

// agentOf finds the agent of a rank by what its launcher told it.
func agentOf(t *testing.T, r *rig.Rig, rank int) int {
	t.Helper()
	pid := 0
	rig.Await(t, rig.Patience, fmt.Sprintf("the agent of rank %d", rank), func() bool {
		for _, p := range agents(r) {
			if isRank(p, rank) {
				pid = p.PID
				return true
			}
		}
		return false
	})
	return pid
}

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, s))
}

// holdingAgent is an agent that stops itself before it does anything where it is the given rank.
func holdingAgent(t *testing.T, rank int) string {
	t.Helper()
	return scriptedAgent(t, fmt.Sprintf("test %s != %d || kill -STOP $$", thisRank, rank))
}

// scriptedAgent is an agent that runs a line of shell first. Its folder is everybody's.
func scriptedAgent(t *testing.T, first string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "o4s-agent-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o1777))
	path := filepath.Join(dir, "openai4s-agent")
	script := fmt.Sprintf("#!/bin/sh\n%s\nexec %s \"$@\"\n", first, filepath.Join(rig.Programs(t), "openai4s-agent"))
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	return path
}

// output is the job's output so far.
func output(t *testing.T, u *rig.User, id string) string {
	t.Helper()
	text, err := os.ReadFile(u.Status(t, id).Text("output"))
	if err != nil {
		return ""
	}
	return string(text)
}

// awaitOutput waits until the job has written the words.
func awaitOutput(t *testing.T, u *rig.User, id, words string, times int) {
	t.Helper()
	rig.Await(t, rig.Patience, fmt.Sprintf("%q %d times in the output", words, times), func() bool {
		return strings.Count(output(t, u, id), words) >= times
	})
}

// within bounds what a test waits for that the promise bounds too; these machines are slow at times.
const within = 30 * time.Second
