//go:build live

package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// TestCase23OneQueryForAll: the daemon asks once for all workloads, one command at a time, and not often.
func TestCase23OneQueryForAll(t *testing.T) {
	t.Parallel()
	squeue := wrapper(t, "squeue", `test "$(id -un)" = o4s-gw && echo "$*" >>$here/asked; exec squeue "$@"`)
	log := filepath.Join(filepath.Dir(squeue), "asked")
	r := rig.New(t, rig.Options{Cluster: shared, Site: fmt.Sprintf("commands = { squeue = %q }", squeue)})
	alice := r.Alice(t)
	var ids, jobs []string
	for range 3 {
		ids = append(ids, alice.Submit(t, rig.Shell(1, `until test -e ../release; do sleep 0.2; done`, "")))
	}
	for _, id := range ids {
		jobs = append(jobs, alice.AwaitPhase(t, id, "ACTIVE").Text("job", "id"))
	}
	asked := func() []string {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	before := len(asked())
	rig.Await(t, rig.Patience, "the daemon to ask three times more", func() bool { return len(asked()) >= before+3 })
	for _, line := range asked()[before:] {
		for _, job := range jobs {
			require.Contains(t, line, job, "one question names every live job")
		}
	}
	alice.Write(t, "release", "")
	for _, id := range ids {
		require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase())
	}
}

// TestCase24FailingQueriesChangeNothing: for a while every squeue and sacct fails, hangs or lies with an empty answer.
func TestCase24FailingQueriesChangeNothing(t *testing.T) {
	t.Parallel()
	squeue := wrapper(t, "squeue", `
test -e $here/broken || exec squeue "$@"
echo x >>$here/failed
echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2
exit 1`)
	here := filepath.Dir(squeue)
	r := rig.New(t, rig.Options{Cluster: shared, Site: fmt.Sprintf("commands = { squeue = %q }", squeue)})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, `until test -e ../release; do sleep 0.2; done`, ""))
	alice.AwaitPhase(t, id, "ACTIVE")
	require.NoError(t, os.WriteFile(filepath.Join(here, "broken"), nil, 0o644))
	rig.Await(t, rig.Patience, "three questions to fail", func() bool {
		failed, _ := os.ReadFile(filepath.Join(here, "failed"))
		return len(failed) >= 6
	})
	w := alice.Status(t, id)
	require.Equal(t, "ACTIVE", w.Phase(), "%s", w)
	require.Equal(t, 4, w.Int("ranks", "live"))
	alice.Write(t, "release", "")
	rig.Await(t, rig.Patience, "the ranks to have ended", func() bool { return alice.Status(t, id).Phase() != "ACTIVE" })
	require.NoError(t, os.Remove(filepath.Join(here, "broken")))
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase())
}

// TestCase30HeldIsTold: a job that waits for a person says so.
func TestCase30HeldIsTold(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Profiles: "[profiles.default]\nmax_nodes = 4\ndirectives = [\"--hold\"]\n"})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, "true", ""))
	w := alice.AwaitStatus(t, id, "held", func(d rig.Doc) bool { return strings.Contains(d.Text("message"), "held") || d.Over() })
	require.Equal(t, "PENDING", w.Phase(), "%s", w)
	require.Contains(t, w.Text("message"), "scontrol release")
	shared.Slurm(t, "scontrol", "release", w.Text("job", "id"))
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase())
}

// TestCase32ARequeueIsTheNextEpoch: the same job, the same id, and ranks of the next epoch; Slurm's record of the end
// is ours.
func TestCase32ARequeueIsTheNextEpoch(t *testing.T) {
	t.Parallel()
	alice := newRig(t).Alice(t)
	id := alice.Submit(t, rig.Shell(2, `echo "rank $RANK of run ${SLURM_RESTART_COUNT:-0}"; test "${SLURM_RESTART_COUNT:-0}" = 1 || exec sleep 600`, "restarts = 1"))
	w := alice.AwaitPhase(t, id, "ACTIVE")
	require.Zero(t, w.Int("epoch"))
	job := w.Text("job", "id")
	rig.Await(t, rig.Patience, "both ranks' first words", func() bool {
		text, _ := os.ReadFile(w.Text("output"))
		return strings.Count(string(text), "of run 0") == 2
	})
	shared.Slurm(t, "scontrol", "requeue", job)
	w = alice.AwaitStatus(t, id, "queued again", func(d rig.Doc) bool { return d.Phase() == "PENDING" || d.Over() })
	require.Equal(t, "PENDING", w.Phase(), "%s", w)
	shared.StartNow(t, job)
	w = alice.AwaitEnd(t, id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Equal(t, 1, w.Int("epoch"))
	require.Equal(t, job, w.Text("job", "id"))
	output := alice.Read(t, w.Text("output"))
	for _, line := range []string{"rank 0 of run 0", "rank 1 of run 0", "rank 0 of run 1", "rank 1 of run 1"} {
		require.Contains(t, output, line)
	}
	require.Equal(t, "COMPLETED", controller(t, shared, job)["JobState"])
}

// TestCase38ForeignBytesAreHarmless: somebody else's job has a name that is no text.
func TestCase38ForeignBytesAreHarmless(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice, bob := r.Alice(t), r.Bob(t)
	ran := bob.Exec(t, "sh", "-c", `sbatch --parsable --output=/dev/null --nodes=1 --comment="$(printf 'a|b\377')" --job-name="$(printf 'x\377|RUNNING|\033[31m\n')" --wrap='exec sleep 600'`)
	require.Zero(t, ran.Code, ran.Stderr)
	theirs := strings.TrimSpace(ran.Stdout)
	run(t, alice, rig.Shell(2, "true", ""))
	require.Equal(t, 85, alice.Run(t, "status", theirs).Code, "not a workload of anybody's")
	require.Zero(t, bob.Exec(t, "scancel", theirs).Code)
}

// TestOtherUsersAreOthers: a user sees, waits for and cancels their own workloads alone.
func TestOtherUsersAreOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice, bob := r.Alice(t), r.Bob(t)
	id := alice.Submit(t, rig.Shell(1, "exec sleep 600", ""))
	job := alice.AwaitPhase(t, id, "ACTIVE").Text("job", "id")
	for _, args := range [][]string{{"status", id}, {"status", job}, {"wait", id}, {"cancel", id}, {"cancel", job}, {"logs", id}} {
		require.Equal(t, 85, bob.Run(t, args...).Code, "%v", args)
	}
	require.Empty(t, bob.List(t))
	require.Equal(t, "ACTIVE", alice.Status(t, id).Phase())
	// Case 65: what has our name and isn't ours is left alone.
	other := bob.Exec(t, "sbatch", "--parsable", "--output=/dev/null", "--job-name="+alice.Status(t, id).Text("job_name"), "--wrap=exec sleep 600")
	require.Zero(t, other.Code, other.Stderr)
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, id).Phase())
	left := controller(t, shared, strings.TrimSpace(other.Stdout))["JobState"]
	require.True(t, slices.Contains([]string{"RUNNING", "PENDING"}, left), left)
	require.Zero(t, bob.Exec(t, "scancel", strings.TrimSpace(other.Stdout)).Code)
}

// TestPrivateData: a daemon that isn't shown other users' jobs believes nobody's absence, and the owner's own commands
// tell it what it can't see.
func TestPrivateData(t *testing.T) {
	t.Parallel()
	own := cluster.Up(t, cluster.Options{Nodes: 2, Set: []string{"PrivateData=jobs"}})
	r := rig.New(t, rig.Options{Cluster: own, Gateway: `absence_deadline = "1s"`})
	alice, bob := r.Alice(t), r.Bob(t)
	id := alice.Submit(t, rig.Shell(2, "exit 0", ""))
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase())
	id = alice.Submit(t, rig.Shell(2, "exec sleep 600", ""))
	job := alice.AwaitPhase(t, id, "ACTIVE").Text("job", "id")
	waits := alice.Submit(t, rig.Shell(2, "exec sleep 600", "ranks_per_node = 4")) // no node has room for it
	require.Empty(t, own.User(t, cluster.Service).Run(t, nil, "squeue", "--noheader").Stdout, "the daemon's user is shown nothing")
	// Nobody of alice's asks for far longer than the deadline, while the daemon looks again and again.
	looks := map[string]bool{}
	rig.Await(t, rig.Patience, "the daemon to have looked four times", func() bool {
		looks[bob.Run(t, "status", "--json").Doc(t).Text("gateway", "observed_at")] = true
		return len(looks) > 4
	})
	audit, err := os.ReadFile(r.Daemon.AuditFile())
	require.NoError(t, err)
	for _, one := range []string{id, waits} {
		require.NotContains(t, string(audit), `"event":"ended","uid":`+strconv.Itoa(alice.UID)+`,"workload":"`+one+`"`)
	}
	require.Equal(t, "ACTIVE", alice.Status(t, id).Phase())
	require.Equal(t, "PENDING", alice.Status(t, waits).Phase())
	require.Zero(t, alice.Run(t, "cancel", waits).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, waits).Phase())
	require.Equal(t, "RUNNING", controller(t, own, job)["JobState"])
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "CANCELLED", w.Phase(), "%s", w)
}
