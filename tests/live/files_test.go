//go:build live

package live_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// TestCase54NobodyElseCanRead: neither an open umask, a setgid folder nor a default ACL opens what is the user's own.
func TestCase54NobodyElseCanRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice := r.Alice(t)
	require.Zero(t, alice.Exec(t, "sh", "-c", "umask 0; mkdir -p .openai4s/run && chmod 2777 .openai4s .openai4s/run && setfacl -d -m u:o4s-bob:rwx,m:rwx .openai4s/run").Code)
	job := alice.JobFile(t, rig.Shell(2, "until test -e ../release; do sleep 0.2; done", ""))
	ran := alice.Exec(t, "sh", "-c", "umask 0; exec "+r.Program("openai4s")+" submit --json "+job)
	require.Zero(t, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
	w := alice.AwaitPhase(t, ran.Doc(t).Text("id"), "ACTIVE")
	err := filepath.WalkDir(w.Text("run"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err == nil {
			require.Zero(t, info.Mode().Perm()&0o077, "%s is %s", path, info.Mode())
		}
		return err
	})
	require.NoError(t, err)
	bundle, err := filepath.Glob(filepath.Join(w.Text("run"), "gang-*.bundle"))
	require.NoError(t, err)
	require.NotEmpty(t, bundle)
	require.NotZero(t, r.Bob(t).Exec(t, "cat", bundle[0]).Code)
	alice.Write(t, "release", "")
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, w.Text("id")).Phase())
}

// TestCase54AnOpenedBundleIsRefused: once others can read a bundle, no rank uses it.
func TestCase54AnOpenedBundleIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Profiles: "[profiles.default]\nmax_nodes = 4\ndirectives = [\"--hold\"]\n"})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(2, "true", ""))
	w := alice.AwaitPhase(t, id, "PENDING")
	require.NoError(t, os.Chmod(filepath.Join(w.Text("run"), "gang-0.bundle"), 0o640))
	shared.Slurm(t, "scontrol", "release", w.Text("job", "id"))
	w = alice.AwaitEnd(t, id)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Contains(t, alice.Read(t, w.Text("output")), "gang-0.bundle")
	require.Contains(t, alice.Read(t, w.Text("output")), "0640")
}

// TestCase55TheDaemonReadsNothingOfTheUsers: a home that the daemon's user can't enter, as a root-squashed or Kerberos one
// is even for root, keeps nobody from anything: what lies in it, the user's own processes wrote and read.
func TestCase55TheDaemonReadsNothingOfTheUsers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice := r.Alice(t)
	require.NoError(t, os.Chmod(alice.Home, 0o700))
	service := shared.User(t, cluster.Service)
	barred := service.Run(t, nil, "ls", alice.Home)
	require.NotZero(t, barred.Code, barred.Stdout)
	require.Contains(t, barred.Stderr, "Permission denied")
	require.NotZero(t, service.UID)

	rows := alice.Write(t, "data/rows.csv", "1,2\n")
	alice.Write(t, "token", "of-alice-alone")
	job := rig.Shell(2, `cat ../data/rows.csv; test "$TOKEN" = of-alice-alone; echo rank $RANK`, `restarts = 1
[secrets]
TOKEN = { file = "~/token" }
[[inputs]]
path = "`+rows+`"
`)
	w, output := run(t, alice, job)
	for _, line := range []string{"1,2\n", "rank 0\n", "rank 1\n"} { // two ranks write, in any order
		require.Contains(t, output, line)
	}
	logs := alice.Run(t, "logs", w.Text("id"))
	require.Zero(t, logs.Code, logs.Stderr)
	require.Contains(t, logs.Stdout, "rank 1")

	// One that fails, whose reports lie in RUN, and one that is cancelled.
	ran := alice.TrySubmit(t, rig.Shell(2, "exit 7", ""), "--wait")
	require.Equal(t, 7, ran.Code, ran.Stderr)
	id := alice.Submit(t, rig.Shell(2, "exec sleep 600", ""))
	alice.AwaitPhase(t, id, "ACTIVE")
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, id).Phase())

	seen := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(alice.Home, ".openai4s"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil {
			seen++
			require.Equal(t, uint32(alice.UID), info.Sys().(*syscall.Stat_t).Uid, path)
		}
		return err
	}))
	require.Greater(t, seen, 6, "run folders and what lies in them")
	log, err := os.ReadFile(r.Daemon.LogFile())
	require.NoError(t, err)
	require.NotContains(t, string(log), "permission denied")
}

// TestCase58OneFileAJob: one file for all ranks, or one for each where asked for.
func TestCase58OneFileAJob(t *testing.T) {
	t.Parallel()
	alice := newRig(t).Alice(t)
	w, output := run(t, alice, rig.Shell(4, "echo $RANK; echo err $RANK >&2", ""))
	require.Len(t, strings.Split(strings.TrimSpace(output), "\n"), 8)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(w.Text("output")), "*.out"))
	require.NoError(t, err)
	require.Len(t, files, 1)

	ran := alice.TrySubmit(t, rig.Shell(4, "echo $RANK", `output = "logs/%j-%r.out"`), "--wait", "--json")
	require.Zero(t, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
	w = ran.Doc(t)
	for rank := range 4 {
		path := strings.ReplaceAll(w.Text("output"), "%r", string(rune('0'+rank)))
		require.Equal(t, string(rune('0'+rank))+"\n", alice.Read(t, path))
	}
}

// TestCase59AnUpgradeLeavesRunningJobsAlone: without an installed agent the script names a copy under its own hash, and
// a new version is another file.
func TestCase59AnUpgradeLeavesRunningJobsAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, SiblingAgent: true})
	alice := r.Alice(t)
	w, _ := run(t, alice, rig.Shell(2, "true", ""))
	script := alice.Read(t, filepath.Join(w.Text("run"), "job.sh"))
	require.Regexp(t, `(?m)^AGENT=.*/agent/[0-9a-f]{64}/openai4s-agent$`, script)
	copies, err := filepath.Glob(filepath.Join(alice.Home, ".openai4s", "run", "agent", "*", "openai4s-agent"))
	require.NoError(t, err)
	require.Len(t, copies, 1)
	before, err := os.Stat(copies[0])
	require.NoError(t, err)
	run(t, alice, rig.Shell(2, "true", ""))
	after, err := os.Stat(copies[0])
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "a copy that is there is used as it is")
}

// TestCase60OutputThatCantBeWritten: told in words, whether it shows at submit or on the node.
func TestCase60OutputThatCantBeWritten(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]string{"no such folder": "/nowhere/at/all/%j.out", "not the user's folder": "/root/%j.out", "a folder": "/tmp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			alice := r.Alice(t)
			ran := alice.TrySubmit(t, rig.Shell(1, "true", "output = \""+output+"\""), "--wait", "--json")
			require.NotZero(t, ran.Code)
			d := ran.Doc(t)
			if ran.Code == 81 {
				require.Contains(t, d.Text("error", "message"), "output")
				alice.RequireNothingMade(t)
				return
			}
			require.Equal(t, "FAILED", d.Phase(), "%s", d)
			require.Contains(t, d.Text("message"), "output", "%s", d)
		})
	}
}
