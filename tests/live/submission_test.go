//go:build live

package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// wrapper writes a program of a site's that stands before one of Slurm's, and returns its path. folder of the wrapper
// is $here in it; everybody may write there.
func wrapper(t *testing.T, name, script string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "o4s-site-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o1777))
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nhere="+dir+"\n"+script+"\n"), 0o755))
	return path
}

// wrapped is a rig whose site names a wrapper in place of sbatch.
func wrapped(t *testing.T, script string) *rig.Rig {
	t.Helper()
	return rig.New(t, rig.Options{Cluster: shared, Site: fmt.Sprintf("commands = { sbatch = %q }", wrapper(t, "sbatch", script))})
}

// TestSiteWrappers: whatever stands before sbatch, the job that came to be is found, runs once, and no other number is
// taken for it.
func TestSiteWrappers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		note   string // told to the user
	}{
		"Case01AnswerLost":         {script: `sbatch "$@" >/dev/null; echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1`, note: "looking the job up by its name"},
		"Case02BusyButGood":        {script: `echo "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying." >&2; exec sbatch "$@"`},
		"Case04EmptyAnswer":        {script: `sbatch "$@" >/dev/null`, note: "looking the job up by its name"},
		"Case06AuthenticationDied": {script: `sbatch "$@" >/dev/null; echo "sbatch: error: Batch job submission failed: Protocol authentication error" >&2; exit 1`, note: "looking the job up by its name"},
		"Case07BannerBeforeID":     {script: "echo 'Welcome to cluster 3'; echo 'charging account 12345'; echo '  1 check passed'; exec sbatch \"$@\""},
		"Case07TwoIDs":             {script: `echo 77777; exec sbatch "$@"`, note: "looking the job up by its name"},
		"Case08ClusterInAnswer":    {script: `id=$(sbatch "$@") && echo "$id;lab"`},
		"Case08ClusterInWords":     {script: `id=$(sbatch "$@") && echo "Submitted batch job $id on cluster lab"`},
		"Case09WrapperThatFails":   {script: `sbatch "$@"; echo "accounting hook: permission denied" >&2; exit 3`, note: "looking the job up by its name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alice := wrapped(t, c.script).Alice(t)
			ran := alice.TrySubmit(t, rig.Shell(1, "echo ran $SLURM_JOB_ID", ""))
			require.Zero(t, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
			if c.note != "" {
				require.Contains(t, ran.Stderr, c.note)
			}
			id := strings.TrimSpace(ran.Stdout)
			w := alice.AwaitEnd(t, id)
			require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
			job := w.Text("job", "id")
			require.Equal(t, "ran "+job+"\n", alice.Read(t, w.Text("output")))
			if strings.HasPrefix(name, "Case08") {
				require.Equal(t, "lab", w.Text("job", "cluster"))
			}
			theirs := strings.Fields(shared.Slurm(t, "squeue", "--noheader", "--states=all", "--format=%i", "--name="+w.Text("job_name")))
			require.Equal(t, []string{job}, theirs, "one job and no second")
			for _, ref := range []string{job, id[:8], "wl_" + id[3:9]} { // case 37: an id is text with a known equality
				require.Equal(t, id, alice.Status(t, ref).Text("id"))
			}
		})
	}
}

// TestCase01NothingWasSubmitted: an answer was lost and nothing is in the queue: the submission stays unknown, until
// --resume hands it over once.
func TestCase01NothingWasSubmitted(t *testing.T) {
	t.Parallel()
	alice := wrapped(t, `
test ! -e $here/tried && { touch $here/tried; echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1; }
exec sbatch "$@"`).Alice(t)
	ran := alice.TrySubmit(t, rig.Shell(1, "echo ran", ""))
	require.Equal(t, 86, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
	all := alice.List(t)
	require.Len(t, all, 1)
	id := all[0].Text("id")
	require.Equal(t, "SUBMITTING", all[0].Phase())
	require.Contains(t, ran.Stderr, "openai4s submit --resume "+id)
	resumed := alice.Run(t, "submit", "--resume", id, "--wait")
	require.Zero(t, resumed.Code, resumed.Stderr)
	w := alice.Status(t, id)
	require.Equal(t, "ran\n", alice.Read(t, w.Text("output")))
}

// TestCase10Language: neither a user's language nor their own ideas of Slurm's formats reach what is parsed.
func TestCase10Language(t *testing.T) {
	t.Parallel()
	own := []string{"LANG=de_DE.UTF-8", "LC_ALL=ja_JP.UTF-8", "LANGUAGE=de", "TZ=Asia/Tokyo", "SLURM_TIME_FORMAT=%d.%m.%Y %Hh", "SQUEUE_FORMAT=%j",
		"SQUEUE_FORMAT2=Name", "SQUEUE_STATES=PENDING", "SQUEUE_USERS=root", "SQUEUE_PARTITION=short", "SACCT_FORMAT=jobname", "SLURM_BITSTR_LEN=1",
		"SBATCH_PARTITION=short", "SBATCH_TIMELIMIT=1", "SBATCH_JOB_NAME=mine", "SBATCH_OUTPUT=/dev/null", "SLURM_CLUSTERS=elsewhere", "SCANCEL_INTERACTIVE=1"}
	r := rig.New(t, rig.Options{Cluster: shared, Env: own})
	alice := r.Alice(t)
	w, output := run(t, alice, rig.Shell(2, "echo $RANK", ""))
	require.ElementsMatch(t, []string{"0", "1"}, strings.Fields(output))
	require.Equal(t, "COMPLETED", w.Text("scheduler_state"))
	require.Equal(t, "main", controller(t, shared, w.Text("job", "id"))["Partition"])
	id := alice.Submit(t, rig.Shell(1, "exec sleep 600", ""))
	alice.AwaitPhase(t, id, "ACTIVE")
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, id).Phase())
}

// TestCase22ALargeScript: what is large travels in the start order, never in the script.
func TestCase22ALargeScript(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice := r.Alice(t)
	w, output := run(t, alice, rig.Shell(1, "echo $LEN", "setup = [\"LEN=$(printf %s '"+strings.Repeat("x", 100_000)+"' | wc -c); export LEN\"]"))
	require.Equal(t, "100000\n", output)
	script, err := os.Stat(filepath.Join(w.Text("run"), "job.sh"))
	require.NoError(t, err)
	require.Less(t, script.Size(), int64(8<<10))

	for count, word := range map[int]string{300_000: "at most", 900_000: "the request is over"} { // six bytes each on the wire
		ran := alice.TrySubmit(t, rig.Shell(1, "true", "setup = [\"# "+strings.Repeat("<", count)+"\"]"))
		require.Equal(t, 81, ran.Code, ran.Stderr)
		require.Contains(t, ran.Stderr, word)
	}
}

// TestTwoJobsOfOneWorkload: whoever puts the script into the queue once more gets a job that starts nothing, ends
// with 10 and says why.
func TestTwoJobsOfOneWorkload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(2, `echo "ran in $SLURM_JOB_ID"; while ! test -e go; do sleep 0.2; done`, ""))
	w := alice.AwaitPhase(t, id, "ACTIVE")
	job := w.Text("job", "id")
	twin := alice.Exec(t, "sbatch", "--parsable", "--job-name="+w.Text("job_name"), "--output="+filepath.Join(alice.Home, "twin.out"), filepath.Join(w.Text("run"), "job.sh"))
	require.Zero(t, twin.Code, twin.Stderr)
	second := strings.TrimSpace(twin.Stdout)
	state, exit := accounted(t, shared, second)
	require.Equal(t, "FAILED 10:0", state+" "+exit)
	require.Contains(t, alice.Read(t, "twin.out"), "another job, "+job+", holds allocation")
	w = alice.Status(t, id)
	require.Equal(t, "ACTIVE", w.Phase(), "%s", w)
	require.Equal(t, job, w.Text("job", "id"), "%s", w)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(w.Text("output")), "go"), nil, 0o644))
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase())
	require.NotContains(t, alice.Read(t, w.Text("output")), "ran in "+second)
}
