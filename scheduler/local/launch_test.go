package local_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// launchCommand starts ranks that each run a piece of shell.
func launchCommand(t *testing.T, shell string, args ...string) *exec.Cmd {
	t.Helper()
	words := append([]string{"local-launch"}, args...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], append(words, "--", "/bin/sh", "-c", shell)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "OPENAI4S_JOB_ID=17")
	return cmd
}

// code runs a command to its end.
func code(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	_ = cmd.Run()
	require.NotNil(t, cmd.ProcessState)
	return cmd.ProcessState.ExitCode()
}

func TestRanksGoToNodesByBlocks(t *testing.T) {
	cmd := launchCommand(t, `echo $OPENAI4S_RANK $OPENAI4S_LOCAL_RANK $OPENAI4S_NODE_RANK $OPENAI4S_NODENAME`, "--nodes=2", "--ranks-per-node=3")
	file, err := os.CreateTemp(t.TempDir(), "out")
	require.NoError(t, err)
	defer file.Close()
	cmd.Stdout = file
	require.Zero(t, code(t, cmd))
	out, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"0 0 0 node1", "1 1 0 node1", "2 2 0 node1", "3 0 1 node2", "4 1 1 node2", "5 2 1 node2",
	}, strings.Split(strings.TrimSpace(string(out)), "\n"))
}

func TestAFileARank(t *testing.T) {
	cmd := launchCommand(t, `echo out $OPENAI4S_RANK; echo err >&2`, "--nodes=2", "--output=%j-%%r-%r")
	require.Zero(t, code(t, cmd))
	for _, rank := range []string{"0", "1"} {
		text, err := os.ReadFile(filepath.Join(cmd.Dir, "17-%r-"+rank))
		require.NoError(t, err)
		require.Equal(t, "out "+rank+"\nerr\n", string(text))
	}
}

func TestTheFirstFailureEndsTheOthers(t *testing.T) {
	cmd := launchCommand(t, `[ $OPENAI4S_RANK != 1 ] || exit 3; exec sleep 60`, "--nodes=3")
	begun := time.Now()
	require.Equal(t, 128+15, code(t, cmd), "the largest code, as srun has it")
	require.Less(t, time.Since(begun), patience)
}

func TestWhatIgnoresTermIsKilled(t *testing.T) {
	cmd := launchCommand(t, `[ $OPENAI4S_RANK != 1 ] || { until [ -e up ]; do sleep 0.01; done; exit 3; }
trap '' TERM; touch up; while :; do sleep 0.05; done`, "--nodes=2", "--kill-delay=100ms")
	require.Equal(t, 128+9, code(t, cmd))
}

func TestTheLargestCodeCounts(t *testing.T) {
	require.Equal(t, 128+9, code(t, launchCommand(t, "kill -KILL $$")))
	require.Equal(t, 127, code(t, launchCommand(t, "exec /nowhere/x")))
	for shell, want := range map[string]int{
		"exit 0": 0,
		`trap 'exit 7' TERM; [ $OPENAI4S_RANK != 0 ] || { until [ -e up ]; do sleep 0.01; done; exit 3; }; touch up; while :; do sleep 0.02; done`: 7,
	} {
		require.Equal(t, want, code(t, launchCommand(t, shell, "--nodes=2")), shell)
	}
}

func TestSignalsReachEveryRank(t *testing.T) {
	for name, sig := range map[string]unix.Signal{"TERM": unix.SIGTERM, "INT": unix.SIGINT, "WINCH": unix.SIGWINCH} {
		t.Run(name, func(t *testing.T) {
			cmd := launchCommand(t, `trap 'touch told-$OPENAI4S_RANK; exit 0' `+name+`; touch up-$OPENAI4S_RANK; while :; do sleep 0.02; done`, "--nodes=2")
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool {
				up, err := filepath.Glob(filepath.Join(cmd.Dir, "up-*"))
				return err == nil && len(up) == 2
			}, patience, 5*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(sig))
			require.NoError(t, cmd.Wait())
			told, err := filepath.Glob(filepath.Join(cmd.Dir, "told-*"))
			require.NoError(t, err)
			require.Len(t, told, 2)
		})
	}
}

// TestInterruptWorksBehindAShell: a shell has its background commands ignore INT; the ranks' commands must not.
func TestInterruptWorksBehindAShell(t *testing.T) {
	inner := launchCommand(t, `exec grep SigIgn /proc/self/status`)
	cmd := exec.Command("/bin/sh", "-c", `"$@" & wait $!`, "sh")
	cmd.Args = append(cmd.Args, inner.Args...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	fields := strings.Fields(string(out))
	require.Len(t, fields, 2)
	require.Equal(t, byte('0'), lastMask(fields[1]), "INT (bit 1) and QUIT (bit 2) are ignored: %s", out)
}

// lastMask is the hex digit of a signal mask that holds HUP, INT, QUIT and ILL, without HUP.
func lastMask(mask string) byte {
	if d := mask[len(mask)-1]; d == '1' {
		return '0'
	}
	return mask[len(mask)-1]
}

func TestAKilledLauncherLeavesNoRanks(t *testing.T) {
	cmd := launchCommand(t, `trap 'touch told; exit 0' TERM; echo $$ >up; while :; do sleep 0.02; done`)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(cmd.Dir, "up"))
		return err == nil && bytes.HasSuffix(text, []byte("\n"))
	}, patience, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(cmd.Dir, "told"))
		return err == nil
	}, patience, 5*time.Millisecond, "the rank isn't told")
}

func TestLaunchSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		args  []string
		code  int
		words string
	}{
		"no command":       {[]string{"--nodes=1"}, 2, "no command"},
		"no nodes":         {[]string{"--nodes=0", "--", "true"}, 2, "0 nodes"},
		"unknown option":   {[]string{"--tasks=1", "--", "true"}, 2, "tasks"},
		"no such program":  {[]string{"--", "/nowhere/agent"}, 127, "/nowhere/agent"},
		"no output folder": {[]string{"--output=/nowhere/%r", "--", "true"}, 127, "/nowhere/0"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], append([]string{"local-launch"}, test.args...)...)
			var words bytes.Buffer
			cmd.Stderr = &words
			require.Equal(t, test.code, code(t, cmd))
			require.Contains(t, words.String(), test.words)
		})
	}
}
