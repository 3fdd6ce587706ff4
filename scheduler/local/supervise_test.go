package local_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/local"
)

// fixture is a System with a folder for a job's files.
type fixture struct {
	*testing.T
	*local.System
	dir  string // of the System
	work string // a job's
}

func newFixture(t *testing.T, mode string) *fixture {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "jobs")
	return &fixture{T: t, System: local.New(dir, []string{self, mode}), dir: dir, work: t.TempDir()}
}

// submission is a script whose working directory is work and whose output is work/out.
func (f *fixture) submission(script string, args ...string) scheduler.Submission {
	return scheduler.Submission{
		Name:   "job",
		Args:   append([]string{"--chdir=" + f.work, "--output=" + filepath.Join(f.work, "out"), "--kill-delay=100ms"}, args...),
		Script: []byte(script),
	}
}

func (f *fixture) submit(script string, args ...string) scheduler.JobID {
	f.Helper()
	receipt, err := f.Submit(f.Context(), f.submission(script, args...))
	require.NoError(f, err)
	require.Equal(f, scheduler.Created, receipt.Outcome, "%+v", receipt)
	return receipt.Job
}

func (f *fixture) read(name string) string {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.work, name))
	require.NoError(f, err)
	return string(text)
}

// appears waits for a file and returns its text once it is a whole line.
func (f *fixture) appears(name string) string {
	f.Helper()
	var text []byte
	require.Eventually(f, func() bool {
		text, _ = os.ReadFile(filepath.Join(f.work, name))
		return strings.HasSuffix(string(text), "\n")
	}, patience, 5*time.Millisecond, "%s doesn't appear", name)
	return strings.TrimSpace(string(text))
}

// gone waits for a process's end.
func (f *fixture) gone(pid string) {
	f.Helper()
	n, err := strconv.Atoi(pid)
	require.NoError(f, err)
	require.Eventually(f, func() bool { return unix.Kill(n, 0) == unix.ESRCH }, patience, 5*time.Millisecond, "process %d is still there", n)
}

// supervisor is the process id of a job's supervisor.
func (f *fixture) supervisor(id scheduler.JobID) int {
	f.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, id.ID, "state.json"))
	require.NoError(f, err)
	var st struct{ Supervisor int }
	require.NoError(f, json.Unmarshal(data, &st))
	return st.Supervisor
}

// TestNothingOutlivesItsJob: a child that left the script's group and session goes with the job all the same.
func TestNothingOutlivesItsJob(t *testing.T) {
	f := newFixture(t, "local-supervise")
	id := f.submit(`
setsid sh -c 'trap "" TERM; echo $$ >left; exec >/dev/null 2>&1 </dev/null; while :; do sleep 1; done' &
until [ -s left ]; do sleep 0.01; done
exit 0`)
	require.Equal(t, scheduler.Completed, outcome(t, f.System, id).Phase)
	f.gone(f.appears("left"))
}

// TestCase64TermThenKill: all of the tree gets TERM, what ignores it is killed after the delay.
func TestCase64TermThenKill(t *testing.T) {
	f := newFixture(t, "local-supervise")
	id := f.submit(`
trap 'echo script >>termed' TERM
setsid sh -c 'trap "echo child >>termed" TERM; echo $$ >up; while :; do sleep 0.05; done' &
while :; do wait; done`, "--kill-delay=2s")
	child := f.appears("up")
	begun := time.Now()
	require.NoError(t, f.Cancel(t.Context(), id, me("job")))
	o := outcome(t, f.System, id)
	require.Equal(t, scheduler.Cancelled, o.Phase)
	require.Equal(t, 9, o.ExitSignal)
	require.GreaterOrEqual(t, time.Since(begun), 2*time.Second, "the kill delay")
	require.ElementsMatch(t, []string{"script", "child"}, strings.Fields(f.read("termed")))
	f.gone(child)
}

// TestCase31AKillAtTheWalltimeIsNoSuccess, even where the script makes the best of its TERM.
func TestCase31AKillAtTheWalltimeIsNoSuccess(t *testing.T) {
	f := newFixture(t, "local-supervise")
	id := f.submit(`trap 'exit 0' TERM; while :; do sleep 0.05; done`, "--time=2s", "--kill-delay=20s")
	o := outcome(t, f.System, id)
	require.Equal(t, scheduler.Failed, o.Phase)
	require.Equal(t, scheduler.TimeLimitExceeded, o.Reason)
	require.Equal(t, 0, *o.ExitCode)
	require.Equal(t, "TIMEOUT", o.Verbatim)
	require.Contains(t, o.Message, "2s")
}

// TestSupervisorGone: a job whose supervisor was killed is a failed node, and its processes are gone as well.
func TestSupervisorGone(t *testing.T) {
	f := newFixture(t, "local-supervise")
	id := f.submit(`echo $$ >up; while :; do sleep 0.05; done`)
	script := f.appears("up")
	require.NoError(t, unix.Kill(f.supervisor(id), unix.SIGKILL))
	o := outcome(t, f.System, id)
	require.Equal(t, scheduler.Failed, o.Phase)
	require.Equal(t, scheduler.NodeFailed, o.Reason)
	require.Equal(t, "NODE_FAIL", o.Verbatim)
	require.Contains(t, o.Message, "supervisor")
	require.Nil(t, o.ExitCode)
	f.gone(script)
	require.ErrorIs(t, f.Cancel(t.Context(), id, me("job")), scheduler.ErrNoSuchJob)
}

// TestCase60OutputFolderMissing and its kin: a job that can't be started says why.
func TestCase60OutputFolderMissing(t *testing.T) {
	f := newFixture(t, "local-supervise")
	for name, test := range map[string]struct{ arg, words string }{
		"no output folder":   {"--output=" + f.work + "/none/out", `output file "` + f.work + `/none/out" can't be opened: no such file or directory`},
		"output is a folder": {"--output=" + f.work, "is a directory"},
		"no workdir":         {"--chdir=" + f.work + "/none", `folder "` + f.work + `/none" can't be entered: no such file or directory`},
		"workdir is a file":  {"--chdir=/etc/passwd", "is no folder"},
	} {
		o := outcome(t, f.System, f.submit("touch ran", test.arg))
		require.Equal(t, scheduler.Failed, o.Phase, name)
		require.Equal(t, scheduler.BootstrapFailed, o.Reason, name)
		require.Contains(t, o.Message, test.words, name)
		require.Nil(t, o.ExitCode, name)
	}
	require.NoFileExists(t, filepath.Join(f.work, "ran"))
}

// TestCase13OuterVariablesStayOut, and secrets of the submitting shell, too.
func TestCase13OuterVariablesStayOut(t *testing.T) {
	for name, value := range map[string]string{
		"SLURM_JOB_ID": "1", "SBATCH_ACCOUNT": "x", "PBS_JOBID": "2", "PMI_RANK": "3", "OPENAI4S_RANK": "4", "HF_TOKEN": "s3cret", "LC_ALL": "C",
	} {
		t.Setenv(name, value)
	}
	f := newFixture(t, "local-supervise")
	id := f.submit("env")
	outcome(t, f.System, id)
	out := "\n" + f.read("out")
	for _, name := range []string{"SLURM_", "SBATCH_", "PBS_", "PMI_", "OPENAI4S_RANK", "HF_TOKEN", "s3cret"} {
		require.NotContains(t, out, name)
	}
	require.Contains(t, out, "\nPATH="+os.Getenv("PATH")+"\n")
	require.Contains(t, out, "\nHOME="+os.Getenv("HOME")+"\n")
	require.Contains(t, out, "\nLC_ALL=C\n")
	require.Contains(t, out, "\nOPENAI4S_JOB_ID="+id.ID+"\n")
}

// TestDetached: the job keeps nothing of the submitter's: no terminal, no session, no descriptor, no lock.
func TestDetached(t *testing.T) {
	f := newFixture(t, "local-supervise")
	inherited, err := os.Open(f.work)
	require.NoError(t, err)
	defer inherited.Close()
	id := f.submit(`readlink /proc/self/fd/0; ls /proc/$$/fd | tr '\n' ' '; echo; cut -d' ' -f6 /proc/$$/stat; pwd`)
	require.Equal(t, scheduler.Completed, outcome(t, f.System, id).Phase)
	lines := strings.Split(f.read("out"), "\n")
	require.Equal(t, "/dev/null", lines[0])
	for _, fd := range strings.Fields(lines[1]) {
		n, err := strconv.Atoi(fd)
		require.NoError(t, err)
		require.True(t, n <= 2 || n >= 10, "descriptor %d is open (a shell's own are 10 and up)", n)
	}
	session, err := unix.Getsid(0)
	require.NoError(t, err)
	require.NotEqual(t, strconv.Itoa(session), lines[2])
	require.Equal(t, f.work, lines[3])
}

// TestJobOutlivesItsSubmitter: the supervisor answers to nobody's death but the scheduler's own orders.
func TestJobOutlivesItsSubmitter(t *testing.T) {
	f := newFixture(t, "local-supervise")
	submitter := exec.Command(os.Args[0], "submit", f.dir, f.work)
	require.NoError(t, submitter.Run())
	require.Equal(t, "late", f.appears("late"))
	require.Equal(t, scheduler.Completed, outcome(t, f.System, scheduler.JobID{ID: "1"}).Phase)
}

func TestOutputIsAppendedAndNamedAfterTheJob(t *testing.T) {
	f := newFixture(t, "local-supervise")
	for range 2 {
		outcome(t, f.System, f.submit("echo again"))
	}
	require.Equal(t, "again\nagain\n", f.read("out"))
	id := f.submit("echo named; echo words >&2", "--output="+f.work+"/100%%j-%j")
	outcome(t, f.System, id)
	require.Equal(t, "named\nwords\n", f.read("100%j-"+id.ID))
}
