package step_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shell makes the step run a script.
func (j *job) shell(script string, outputs ...string) *job {
	for _, o := range outputs {
		j.args = append(j.args, "--output", o)
	}
	j.args = append(j.args, "--", "sh", "-c", script)
	return j
}

func TestCommandFindsItsInputsAndItsMatchesArePublished(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a.csv", data: "1\n2\n"}, in{name: "d/b.csv", port: "other", data: "3\n"})
	j.manifest["params"] = doc{"threshold": 0.5}
	j.shell(`set -e
		test "$(cat inputs/a.csv inputs/d/b.csv | wc -l)" = 3
		test "$PWD" = "$OPENAI4S_STEP_WORK"
		grep -q '"threshold":0.5' "$OPENAI4S_STEP_PARAMS"
		grep -q '"path": "inputs/d/b.csv"' "$OPENAI4S_STEP_INPUTS"
		mkdir -p results/deep && echo x > results/x.csv && echo y > results/deep/y.csv && echo no > results/z.txt
		echo hi; echo oops >&2`, "tables=results/**/*.csv", "first=results/x.csv", "first=*.nothing")
	j.succeeded()
	require.Equal(t, doc{"tables": []any{"outputs/results/deep/y.csv", "outputs/results/x.csv"},
		"first": []any{"outputs/results/x.csv"}, "report": []any{"result.json"}}, j.marker()["produced_ports"])
	require.Equal(t, []string{"outputs/results/deep/y.csv", "outputs/results/x.csv", "result.json"}, j.objects())
	require.Contains(t, j.stdout.String(), "hi\n")
	require.Contains(t, j.stderr.String(), "oops\n")
	require.Contains(t, j.stderr.String(), "nothing matches *.nothing")
	requireNoScratch(t, j)
}

func TestCommandsCodes(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 10": 10, "exit 20": 20, "exit 30": 30,
		"exit 2": 10, "exit 127": 10, "exit 137": 10, "kill -KILL $$": 10, "kill -TERM $$": 10,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			j := newJob(t)
			j.shell("echo made > left.txt; "+script, "output=left.txt")
			require.Equal(t, want, j.run(), j.output())
			m := j.marker()
			require.EqualValues(t, want, m["exit_code"])
			require.Equal(t, map[int]string{0: "succeeded", 20: "cancelled"}[want], map[bool]any{true: m["status"], false: ""}[want%20 == 0])
			if want != 20 {
				require.Contains(t, j.objects(), "outputs/left.txt", "what a failed command left can be salvaged")
			}
			if strings.HasPrefix(script, "kill") {
				require.Contains(t, m["error"], "killed by signal")
			}
		})
	}
}

func TestCommandThatCannotStartIsPermanent(t *testing.T) {
	t.Parallel()
	for name, argv := range map[string][]string{"no such program": {"no-such-program-anywhere"}, "no such file": {"./nothing"}, "a folder": {"/tmp"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t)
			j.args = append([]string{"--"}, argv...)
			require.Contains(t, j.failed(10), argv[0])
		})
	}
}

func TestCommandDoesNotRunWithAChangedInput(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.objects["a"] = content{data: []byte("2")}
	ran := filepath.Join(j.dir, "ran")
	j.shell("touch " + ran)
	require.Contains(t, j.failed(10), "hashes to")
	require.NoFileExists(t, ran)
}

func TestParamsAndSecretsReachTheCommandButNoLog(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.manifest["params"] = doc{"note": "plain"}
	j.env = []string{"HF_TOKEN=hf_verysecretvalue"}
	j.secrets = []string{"hf_verysecretvalue"}
	j.shell(`set -e
		test "$(stat -c %a params.json)" = 600
		test "$HF_TOKEN" = hf_verysecretvalue
		test -z "$LSPO_CREDENTIALS_FILE$LSPO_CREDENTIALS"
		test "$LSPO_EXECUTION_ID" = 7`)
	j.succeeded()
}

func TestCommandThatPrintsACredentialIsRedacted(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.env = []string{"CREDS=" + j.creds}
	j.shell(`cat "$CREDS"; cat "$CREDS" >&2; echo "see https://user:hunter2hunter2@host/x?sig=abc#f and S3://b/k?y"; printf 'red \033[31m and\r over\n'; printf 'no newline'`)
	j.secrets = []string{"hunter2hunter2", "sig=abc", "?y"}
	j.succeeded()
	require.Contains(t, j.stdout.String(), "see https://host/x and S3://b/k\n")
	require.Contains(t, j.stdout.String(), "no newline\n")
	require.Contains(t, j.stdout.String(), "[redacted]")
}

func TestCommandsProgressIsPartOfTheWholes(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.shell(`echo '@lspo:progress {"fraction": 0.5, "phase": "half"}'
		echo '@openai4s:progress {"fraction": 0.25, "phase": "back"}'
		echo '@lspo:progress {"fraction": 7}'
		echo '@lspo:progress nonsense'`)
	j.succeeded()
	for _, line := range []string{`{"fraction": 7}`, "nonsense"} {
		require.Contains(t, j.stdout.String(), "@lspo:progress "+line, "a malformed line is ordinary log")
	}
	text := strings.ReplaceAll(strings.ReplaceAll(j.stdout.String(), `@lspo:progress {"fraction": 7}`, ""), "@lspo:progress nonsense", "")
	all, _ := progressOf(t, text)
	var phases []string
	for _, p := range all {
		phases = append(phases, *p.Phase)
	}
	require.Contains(t, phases, "half")
	require.NotContains(t, phases, "back")
}

func TestCommandsLongLineIsCut(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	j.shell(`head -c 300000 /dev/zero | tr '\0' x; echo; echo after`)
	j.succeeded()
	for line := range strings.Lines(j.stdout.String()) {
		require.LessOrEqual(t, len(line), 64<<10+1)
	}
	require.Contains(t, j.stdout.String(), "\nafter\n")
}

func TestStopEndsTheCommandAndPublishesNothingNew(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	ready := filepath.Join(j.dir, "ready")
	j.shell("echo x > made.csv; touch "+ready+"; sleep 1000", "output=*.csv")
	j.start()
	requireFile(t, ready)
	j.stop(promptly)
	require.Empty(t, j.objects())
	requireNoReport(t, j)
}

func TestStopKillsACommandThatDoesNotHearIt(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	ready := filepath.Join(j.dir, "ready")
	j.shell("trap '' TERM; touch " + ready + "; while :; do sleep 1; done")
	j.start()
	requireFile(t, ready)
	j.stop(15 * time.Second) // 8 s of grace, then KILL
}

func TestWhatACommandLeavesBehindIsKilled(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	pids := filepath.Join(j.dir, "pids")
	j.shell(fmt.Sprintf(`sleep 1001 & echo $! >> %[1]s
		setsid sh -c 'echo $$ >> %[1]s; trap "" TERM HUP; sleep 1002 & wait' &
		until [ "$(wc -l < %[1]s)" = 2 ]; do sleep 0.05; done`, pids))
	j.start()
	require.Equal(t, 0, j.wait(20*time.Second), j.output())
	text, err := os.ReadFile(pids)
	require.NoError(t, err)
	for _, pid := range strings.Fields(string(text)) {
		require.NoDirExists(t, "/proc/"+pid)
	}
}

func TestAsProcessOneACommandsOrphansAreReaped(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make a pid namespace")
	}
	j := newJob(t)
	j.wrap = []string{"unshare", "--pid", "--fork", "--mount-proc"}
	// Orphans end while the command runs on: none may be left as a zombie.
	j.shell(`for i in 1 2 3 4 5; do sh -c 'sleep 0.1 & exit 0'; done
		for i in $(seq 100); do
			zombies=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z 1 ')
			sleepers=$(cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep)
			[ "$zombies$sleepers" = 00 ] && exit 0
			sleep 0.05
		done
		exit 30`)
	j.succeeded()
}

func TestWorkFolderThatIsNamedIsKept(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.args = []string{"--work", "kept"}
	j.shell("echo x > out.txt", "output=out.txt")
	j.succeeded()
	require.FileExists(t, filepath.Join(j.dir, "kept", "out.txt"))
	info, err := os.Stat(filepath.Join(j.dir, "kept", "params.json"))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
}

func TestObjectOver1GiBIsRefusedBeforeSending(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	j.shell("truncate -s 1073741825 huge.bin", "output=huge.bin")
	require.Contains(t, j.failed(10), "1073741824")
	require.NotContains(t, j.store.requests("upload"), "outputs/huge.bin")
}

// Section 18: no more of a file is sent than its Content-Length promised, and no less. Not beside other tests: an upload
// may be silent for ten seconds at most.
func TestOutputThatChangesItsSizeMeanwhile(t *testing.T) {
	const size = 24 << 20
	for name, c := range map[string]struct {
		change func(*os.File) error
		code   int
	}{
		"it grows":   {func(f *os.File) error { _, err := f.Write([]byte("more")); return err }, 0},
		"it shrinks": {func(f *os.File) error { return f.Truncate(1 << 20) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			j.args = []string{"--work", "kept"}
			j.shell(fmt.Sprintf("head -c %d /dev/zero >out.bin", size), "output=out.bin")
			way := newNarrowWay(t, j.store.server.Listener.Addr().String(), 4<<20)
			j.envelope = doc{"staging": doc{"mode": "presigned_post", "post": doc{"url": "http://" + way.listener.Addr().String() + "/post",
				"key_prefix": prefix, "fields": orderedFields(j.store.formFields(1))}}}
			j.start()
			way.await(t) // the upload has begun, so the file was measured
			f, err := os.OpenFile(filepath.Join(j.dir, "kept", "out.bin"), os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			require.NoError(t, c.change(f))
			require.NoError(t, f.Close())
			close(way.open)
			require.Equal(t, c.code, j.wait(30*time.Second), j.output())
			if c.code != 0 {
				require.Contains(t, j.marker()["error"], "shrank")
				return
			}
			require.EqualValues(t, size, j.marker()["objects"].([]any)[0].(doc)["size"])
			require.Len(t, j.body("outputs/out.bin"), 16<<20, "as much as this store keeps")
		})
	}
}

func TestReportOfACommandThatIsNoJSONIsLeftOut(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	j.shell("echo nonsense > result.json")
	j.succeeded()
	require.Contains(t, j.stderr.String(), "left out")
}

func TestArgumentsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"an unknown flag":          {"--nope"},
		"an output without a port": {"--output", "x", "--", "true"},
		"a blank port":             {"--output", " =x", "--", "true"},
		"a glob that climbs":       {"--output", "p=../x", "--", "true"},
		"an absolute glob":         {"--output", "p=/etc/*", "--", "true"},
		"a broken pattern":         {"--output", "p=[", "--", "true"},
		"outputs and no command":   {"--output", "p=x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t)
			j.args = args
			require.Equal(t, 10, j.run())
			require.Equal(t, 1, strings.Count(j.stderr.String(), "\n"), j.stderr.String())
			require.Empty(t, j.store.names)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	j.args = []string{"--help"}
	require.Equal(t, 0, j.run())
	require.Contains(t, j.stdout.String(), "Example:")
	require.Empty(t, j.stderr.String())
}

func requireFile(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, 20*time.Second, 5*time.Millisecond)
}
