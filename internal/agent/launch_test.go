package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		lines        string
		nodes, ranks int
		want         string // rank:node.local@host
		fails        string
	}{
		"one rank a node":                       {lines: "n1 n2 n3", nodes: 3, ranks: 1, want: "0:0.0@n1 1:1.0@n2 2:2.0@n3"},
		"two ranks a node, a line each":         {lines: "n1 n1 n2 n2", nodes: 2, ranks: 2, want: "0:0.0@n1 1:0.1@n1 2:1.0@n2 3:1.1@n2"},
		"two ranks a node, interleaved":         {lines: "n2 n1 n2 n1", nodes: 2, ranks: 2, want: "0:0.0@n2 1:0.1@n2 2:1.0@n1 3:1.1@n1"},
		"two ranks a node, one line a node":     {lines: "n1 n2", nodes: 2, ranks: 2, want: "0:0.0@n1 1:0.1@n1 2:1.0@n2 3:1.1@n2"},
		"packed: two nodes on one host":         {lines: "n1 n1 n2", nodes: 3, ranks: 1, want: "0:0.0@n1 1:0.1@n1 2:1.0@n2"},
		"packed, two ranks a node, a line each": {lines: "n1 n1 n1 n1", nodes: 2, ranks: 2, want: "0:0.0@n1 1:0.1@n1 2:0.2@n1 3:0.3@n1"},
		"too few":                               {lines: "n1", nodes: 2, ranks: 2, fails: "neither 2 nodes nor 4 ranks"},
		"too many":                              {lines: "n1 n2 n3", nodes: 2, ranks: 1, fails: "neither 2 nodes nor 2 ranks"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := places(strings.Fields(c.lines), c.nodes, c.ranks)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			var text []string
			for _, p := range got {
				text = append(text, fmt.Sprintf("%d:%d.%d@%s", p.rank, p.node, p.local, p.host))
			}
			assert.Equal(t, c.want, strings.Join(text, " "))
		})
	}
}

func TestPlacesWhateverTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, ranks := rapid.IntRange(1, 8).Draw(t, "nodes"), rapid.IntRange(1, 4).Draw(t, "ranks")
		var lines []string
		for n := range nodes {
			for range ranks {
				lines = append(lines, fmt.Sprintf("n%d", n))
			}
		}
		got, err := places(rapid.Permutation(lines).Draw(t, "lines"), nodes, ranks)
		require.NoError(t, err)
		require.Len(t, got, nodes*ranks)
		for i, p := range got {
			require.Equal(t, i, p.rank)
			require.Equal(t, i/ranks, p.node, "ranks go by blocks")
			require.Equal(t, i%ranks, p.local)
			require.Equal(t, got[i-i%ranks].host, p.host)
		}
	})
}

// rig is a launch whose remote shell runs the program on this machine, with HOST set; body is the program's text.
type rig struct {
	dir string
	Launch
	errs *os.File
}

func newRig(t *testing.T, hosts, body string) *rig {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		return path
	}
	remote := write("remote", `HOST=$1; export HOST; shift; echo "$HOST $*" >>`+dir+`/calls; exec "$@"`)
	program := write("program", `shift; RANK=$2; LOCAL=$4; NODE=$6; `+body)
	errs, err := os.Create(filepath.Join(dir, "stderr"))
	require.NoError(t, err)
	t.Cleanup(func() { errs.Close() })
	lines := strings.Fields(hosts)
	return &rig{dir: dir, errs: errs, Launch: Launch{
		Nodes: len(lines), RanksPerNode: 1, Hosts: lines, Remote: []string{remote}, Command: []string{program, "first"},
		Grace: 100 * time.Millisecond, Poll: 10 * time.Millisecond, Stdout: errs, Stderr: errs,
	}}
}

func (r *rig) said(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(r.errs.Name())
	require.NoError(t, err)
	return string(b)
}

func TestLaunchTellsEachRankItsPlace(t *testing.T) {
	r := newRig(t, "n3 n1 n3 n1", `echo "rank $RANK local $LOCAL node $NODE host $HOST and $8"`)
	r.Nodes, r.RanksPerNode = 2, 2
	code, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 0, code)
	assert.ElementsMatch(t, []string{
		"rank 0 local 0 node 0 host n3 and n3", "rank 1 local 1 node 0 host n3 and n3",
		"rank 2 local 0 node 1 host n1 and n1", "rank 3 local 1 node 1 host n1 and n1",
	}, strings.Split(strings.TrimSpace(r.said(t)), "\n"))
}

func TestLaunchReturnsTheLargestCode(t *testing.T) {
	r := newRig(t, "n1 n2 n3", `exit $((RANK * 3))`)
	r.Grace = time.Minute
	code, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 6, code)
}

func TestLaunchABadEndEndsTheOthers(t *testing.T) {
	r := newRig(t, "n1 n2 n3", `test $RANK = 1 && exit 7; exec sleep 600`)
	code, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 7, code)
	assert.Contains(t, r.said(t), "rank 1 on n2 ended with code 7")
	assert.Contains(t, r.said(t), "given up: ranks [0 2]")
}

func TestLaunchABadEndLeavesTheOthersTheirGrace(t *testing.T) {
	r := newRig(t, "n1 n2", `test $RANK = 1 && exit 7; until test -e `+"$0.go"+`; do sleep 0.01; done; exit 9`)
	r.Grace = time.Minute
	done := make(chan int, 1)
	go func() {
		code, _ := r.Run(t.Context())
		done <- code
	}()
	// The other rank ends itself only after the launcher has spoken of the first.
	require.Eventually(t, func() bool { return strings.Contains(r.said(t), "ended with code 7") }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "program.go"), nil, 0o600))
	assert.Equal(t, 9, <-done)
	assert.NotContains(t, r.said(t), "given up")
}

// A bad end is told to the ranks that are left, once on every host of theirs, so that they can end by themselves.
func TestLaunchABadEndIsToldToTheOthers(t *testing.T) {
	r := newRig(t, "n1 n1 n2 n3", `test $RANK = 3 && exit 7; exec "$(dirname "$0")/rank" "$HOST"`)
	r.Nodes, r.RanksPerNode, r.Hosts = 4, 1, []string{"n1", "n1", "n2", "n3"}
	r.Grace = time.Minute
	write := func(name, text string) string {
		path := filepath.Join(r.dir, name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		return path
	}
	write("rank", `until test -e `+r.dir+`/stop-"$1"; do sleep 0.01; done; exit 5`)
	r.Stop = []string{write("stop", `echo "stop $HOST $*" >>`+r.dir+`/stops; : >`+r.dir+`/stop-$HOST`), "first"}
	code, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 7, code)
	assert.NotContains(t, r.said(t), "given up")
	stops, err := os.ReadFile(filepath.Join(r.dir, "stops"))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"stop n1 first", "stop n2 first"}, strings.Split(strings.TrimSpace(string(stops)), "\n"))
}

// Stop ends the ranks that were started with its arguments, and nothing else.
func TestStopEndsItsOwnRanks(t *testing.T) {
	ours := "while :; do sleep 0.05; done # " + t.TempDir()
	start := func(args ...string) <-chan error {
		cmd := exec.Command("/bin/sh", args...)
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() {
			ended <- cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // some have ended
			for range ended {
			}
		})
		return ended
	}
	first, second := start("-c", ours, "--rank", "0"), start("-c", ours, "--rank", "1")
	others := []<-chan error{start("-c", ours+" another", "--rank", "0"), start("-c", ours, "--other"), start("-c", ours)}
	assert.Zero(t, StopCommand([]string{"-c", ours}, io.Discard))
	assert.ErrorContains(t, <-first, "terminated")
	assert.ErrorContains(t, <-second, "terminated")
	for _, o := range others {
		select {
		case err := <-o:
			t.Errorf("another process was ended: %v", err)
		default:
		}
	}
	assert.Equal(t, exitUsage, StopCommand(nil, io.Discard))
}

// A remote shell to a lost host hangs for ever; the gang's end is known by the exit file.
func TestLaunchALostHostIsGivenUpOnceTheEndIsDecided(t *testing.T) {
	r := newRig(t, "n1 n2", `test $RANK = 0 && { echo 0 >"$0.exit"; exit 0; }; exec sleep 600`)
	r.ExitFile = filepath.Join(r.dir, "program.exit")
	code, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, exitUnended, code)
	assert.NotContains(t, r.said(t), "what is left ends", "a good end says nothing")
	assert.Contains(t, r.said(t), "given up: ranks [1]")
}

func TestLaunchRanksThatEndBySignal(t *testing.T) {
	r := newRig(t, "n1", `kill -9 $$`)
	code, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 137, code)
}

func TestLaunchAFileForEachRank(t *testing.T) {
	r := newRig(t, "n1 n2", `echo "out $RANK"; echo "err $RANK" >&2`)
	r.Output = filepath.Join(r.dir, "logs", "it's %%r %r.out")
	code, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 0, code)
	for rank := range 2 {
		b, err := os.ReadFile(filepath.Join(r.dir, "logs", fmt.Sprintf("it's %%r %d.out", rank)))
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("out %d\nerr %d\n", rank, rank), string(b))
	}
}

func TestLaunchArgumentsPassUnchanged(t *testing.T) {
	r := newRig(t, "n1", ``)
	r.Command = []string{"printf", `<%s>`, "a b", "q'q", "$HOME", "", "x*", "ü"}
	code, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 0, code)
	assert.True(t, strings.HasPrefix(r.said(t), "<a b><q'q><$HOME><><x*><ü><--rank><0>"), r.said(t))
}

// TERM reaches every process of a job at once. The remote shells have to live through it, or nobody could tell how
// the ranks ended.
func TestCase64TermReachesRanksThroughTheScheduler(t *testing.T) {
	r := newRig(t, "n1 n2", `trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done`)
	ctx, cancel := context.WithCancel(t.Context())
	r.Grace = time.Minute
	// The rank is elsewhere: no child of the shielded remote shell's kind.
	require.NoError(t, os.WriteFile(r.Remote[0], []byte("#!/bin/sh\nshift\nenv --default-signal=TERM \"$@\" &\nwait $!\n"), 0o700))
	done := make(chan int, 1)
	go func() {
		code, _ := r.Run(ctx)
		done <- code
	}()
	require.Eventually(t, func() bool { return strings.Count(r.said(t), "ready") == 2 }, 10*time.Second, 5*time.Millisecond)
	// As the scheduler does: TERM to the launcher's children as well as to the ranks.
	for _, pid := range processesBelow(t, os.Getpid()) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	cancel()
	select {
	case code := <-done:
		assert.Equal(t, 5, code)
	case <-time.After(20 * time.Second):
		t.Fatal("the ranks did not end")
	}
}

// processesBelow of a process, by /proc.
func processesBelow(t *testing.T, pid int) []int {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "pid=,ppid=").Output()
	require.NoError(t, err)
	children := map[int][]int{}
	for line := range strings.Lines(string(out)) {
		var p, pp int
		_, err := fmt.Sscan(line, &p, &pp)
		require.NoError(t, err)
		children[pp] = append(children[pp], p)
	}
	var all []int
	todo := children[pid]
	for len(todo) > 0 {
		all = append(all, todo[0])
		todo = append(todo[1:], children[todo[0]]...)
	}
	return all
}

func TestLaunchCommand(t *testing.T) {
	r := newRig(t, "", `exit $RANK`)
	nodeFile := filepath.Join(r.dir, "nodes")
	for name, c := range map[string]struct {
		nodes string
		args  []string
		code  int
		words string
	}{
		"good":              {nodes: "n1\nn2\n\nn3\n", args: []string{"--nodes=3", "--remote", r.Remote[0], "--", r.Command[0], "first"}, code: 2, words: "ended with code"},
		"no program":        {nodes: "n1\n", args: []string{"--remote=x"}, code: 255, words: "no program"},
		"no remote":         {nodes: "n1\n", args: []string{"--", "x"}, code: 255, words: "--remote"},
		"empty node file":   {nodes: "\n", args: []string{"--remote=x", "--", "x"}, code: 255, words: "names no host"},
		"not a host":        {nodes: "-x\n", args: []string{"--remote=x", "--", "x"}, code: 255, words: "no host"},
		"wrong node file":   {nodes: "n1\n", args: []string{"--nodes=3", "--remote=x", "--", "x"}, code: 255, words: "neither 3 nodes"},
		"bad flag":          {nodes: "n1\n", args: []string{"--nosuch"}, code: 255, words: "nosuch"},
		"a missing program": {nodes: "n1\n", args: []string{"--remote=/nonexistent/rsh", "--", "x"}, code: 127, words: "/nonexistent/rsh"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(nodeFile, []byte(c.nodes), 0o600))
			errs, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			require.NoError(t, err)
			defer errs.Close()
			code := LaunchCommand(append([]string{"--node-file", nodeFile, "--grace=1ms"}, c.args...), errs, errs)
			b, err := os.ReadFile(errs.Name())
			require.NoError(t, err)
			if name == "good" { // with no grace the others may be given up before they end
				assert.Positive(t, code)
				assert.LessOrEqual(t, code, c.code)
				return
			}
			assert.Equal(t, c.code, code)
			assert.Contains(t, string(b), c.words)
		})
	}
	var out bytes.Buffer
	assert.Equal(t, 255, LaunchCommand([]string{"--node-file=/nonexistent", "--remote=x", "--", "x"}, &out, &out))
	assert.Contains(t, out.String(), "reading the node file")
}
