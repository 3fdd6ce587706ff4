package local_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/local"
)

func TestRejectedSubmissions(t *testing.T) {
	f := newFixture(t, "local-supervise")
	for _, args := range [][]string{
		{"--chdir=relative"}, {"--output=relative"}, {"--nodes=0"}, {"--nodes=65536", "--ranks-per-node=65536"}, {"--time=-1s"},
		{"--time=5"}, {"--parsable"}, {"stray"},
	} {
		sub := f.submission("exit 0")
		sub.Args = args
		receipt, err := f.Submit(t.Context(), sub)
		require.NoError(t, err)
		require.Equal(t, scheduler.Rejected, receipt.Outcome, "%v", args)
		require.Equal(t, scheduler.BackendRejected, receipt.Reason)
		require.NotEmpty(t, receipt.Text)
	}
	require.NoDirExists(t, f.dir)
}

func TestSupervisorThatEndsAtOnce(t *testing.T) {
	f := newFixture(t, "broken-supervise")
	receipt, err := f.Submit(t.Context(), f.submission("exit 0"))
	require.NoError(t, err)
	require.Equal(t, scheduler.Rejected, receipt.Outcome)
	require.Contains(t, receipt.Text, "no [31msuch[0m luck", "its words, harmless ones")
	found, err := f.Find(t.Context(), me("job"))
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestSupervisorThatIsNotThere(t *testing.T) {
	f := newFixture(t, "")
	s := local.New(f.dir, []string{"/nowhere/openai4s"})
	_, err := s.Submit(t.Context(), f.submission("exit 0"))
	require.ErrorContains(t, err, "/nowhere/openai4s")
	found, err := s.Find(t.Context(), me("job"))
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestCase01ALostAnswerIsUnknown, and the job can be looked up.
func TestCase01ALostAnswerIsUnknown(t *testing.T) {
	f := newFixture(t, "mute-supervise")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		defer cancel() // the caller gives up once the job is there
		for found := []scheduler.JobID(nil); len(found) == 0 && ctx.Err() == nil; {
			found, _ = f.Find(ctx, me("job")) // not there yet
		}
	}()
	receipt, err := f.Submit(ctx, f.submission("exit 0"))
	require.NoError(t, err)
	require.Equal(t, scheduler.Unknown, receipt.Outcome)
	require.Equal(t, scheduler.BackendSubmissionUnknown, receipt.Reason)
	require.Contains(t, receipt.Text, "did not answer")

	found, err := f.Find(t.Context(), me("job"))
	require.NoError(t, err)
	require.Equal(t, []scheduler.JobID{{ID: "1"}}, found)
	a, err := f.Observe(t.Context(), found)
	require.NoError(t, err)
	require.Equal(t, scheduler.Pending, a.Known[found[0]].Phase)
	require.ErrorIs(t, f.Cancel(t.Context(), found[0], me("job")), scheduler.ErrNoAnswer, "nobody to tell yet")
}

func TestIDsAtOnceAreDistinct(t *testing.T) {
	f := newFixture(t, "local-supervise")
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[scheduler.JobID]bool{}
	for range 6 {
		wg.Go(func() {
			receipt, err := f.Submit(t.Context(), f.submission("exit 0"))
			if err == nil && receipt.Outcome == scheduler.Created {
				mu.Lock()
				ids[receipt.Job] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, ids, 6)
	for id := range ids {
		require.Equal(t, scheduler.Completed, outcome(t, f.System, id).Phase)
	}
}

func TestFoldersAreTheOwnersAlone(t *testing.T) {
	f := newFixture(t, "local-supervise")
	id := f.submit("exit 0")
	outcome(t, f.System, id)
	for _, dir := range []string{f.dir, filepath.Join(f.dir, id.ID)} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), dir)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if info, err := e.Info(); err == nil && !e.IsDir() {
				require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), e.Name())
			}
		}
	}
}

// rewrite changes a job's file as JSON.
func (f *fixture) rewrite(id scheduler.JobID, file string, change func(map[string]any)) {
	f.Helper()
	path := filepath.Join(f.dir, id.ID, file)
	data, err := os.ReadFile(path)
	require.NoError(f, err)
	var v map[string]any
	require.NoError(f, json.Unmarshal(data, &v))
	change(v)
	data, err = json.Marshal(v)
	require.NoError(f, err)
	require.NoError(f, os.WriteFile(path, data, 0o600))
}

func TestOldJobsArePrunedAndIDsNeverComeBack(t *testing.T) {
	f := newFixture(t, "local-supervise")
	long := time.Now().Add(-8 * 24 * time.Hour)
	var ids []scheduler.JobID
	for range 3 {
		id := f.submit("exit 0")
		outcome(t, f.System, id)
		ids = append(ids, id)
	}
	for _, id := range []scheduler.JobID{ids[0], ids[2]} {
		f.rewrite(id, "state.json", func(st map[string]any) { st["ended"] = long })
	}
	live := filepath.Join(f.dir, "stray")
	require.NoError(t, os.Mkdir(live, 0o700))

	next := f.submit("exit 0") // ids[0] goes; ids[2] is the last one and stays
	require.Equal(t, "4", next.ID)
	a, err := f.Observe(t.Context(), ids)
	require.NoError(t, err)
	require.NotContains(t, a.Known, ids[0])
	require.Contains(t, a.Known, ids[1])
	require.Contains(t, a.Known, ids[2])

	outcome(t, f.System, next)
	outcome(t, f.System, f.submit("exit 0"))
	a, err = f.Observe(t.Context(), ids)
	require.NoError(t, err)
	require.NotContains(t, a.Known, ids[2], "there is a later one now")
	require.DirExists(t, live, "what isn't ours stays")
}

// TestCase24NoAnswerIsNotAbsence: a job that can't be read, or runs on another machine, is neither absent nor over.
func TestCase24NoAnswerIsNotAbsence(t *testing.T) {
	t.Run("unreadable", func(t *testing.T) {
		f := newFixture(t, "local-supervise")
		id := f.submit("exit 0")
		outcome(t, f.System, id)
		require.NoError(t, os.WriteFile(filepath.Join(f.dir, id.ID, "spec.json"), []byte("{"), 0o600))
		a, err := f.Observe(t.Context(), []scheduler.JobID{id})
		require.NoError(t, err)
		require.ErrorIs(t, a.Unanswered[id], scheduler.ErrNoAnswer)
		require.Empty(t, a.Known)
		_, err = f.Find(t.Context(), me("job"))
		require.ErrorIs(t, err, scheduler.ErrNoAnswer)
		require.ErrorIs(t, f.Cancel(t.Context(), id, me("job")), scheduler.ErrNoAnswer)
	})
	t.Run("elsewhere", func(t *testing.T) {
		f := newFixture(t, "local-supervise")
		id := f.submit("echo $$ >up; while :; do sleep 0.05; done")
		f.appears("up")
		pid := f.supervisor(id)
		t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGTERM) })
		f.rewrite(id, "spec.json", func(sp map[string]any) { sp["host"] = "elsewhere" })
		a, err := f.Observe(t.Context(), []scheduler.JobID{id})
		require.NoError(t, err)
		require.ErrorContains(t, a.Unanswered[id], "runs on elsewhere")
		require.ErrorIs(t, f.Cancel(t.Context(), id, me("job")), scheduler.ErrNoAnswer)
		found, err := f.Find(t.Context(), me("job"))
		require.NoError(t, err)
		require.Equal(t, []scheduler.JobID{id}, found)
		require.NoError(t, unix.Kill(pid, unix.SIGTERM))
		f.gone(strconv.Itoa(pid))
	})
}

// TestCase37IDsAreExact: what is written otherwise is another id.
func TestCase37IDsAreExact(t *testing.T) {
	f := newFixture(t, "local-supervise")
	id := f.submit("exit 0")
	outcome(t, f.System, id)
	odd := []scheduler.JobID{{ID: "01"}, {ID: "+1"}, {ID: "1 "}, {ID: ""}, {ID: ".."}, {ID: "1/../1"}, {ID: "-1"}, {ID: "1", Cluster: "c"}, {ID: "99999999999999999999"}}
	a, err := f.Observe(t.Context(), append(odd, id))
	require.NoError(t, err)
	require.Len(t, a.Known, 1)
	require.Empty(t, a.Unanswered)
	for _, o := range odd {
		require.ErrorIs(t, f.Cancel(t.Context(), o, me("job")), scheduler.ErrNoSuchJob, "%+v", o)
	}
}

func TestHostsByNode(t *testing.T) {
	f := newFixture(t, "local-supervise")
	o := outcome(t, f.System, f.submit("exit 0", "--nodes=3", "--ranks-per-node=2"))
	require.Equal(t, []string{"node1", "node2", "node3"}, o.Hosts)
}

func TestFactsAndInspect(t *testing.T) {
	f := newFixture(t, "local-supervise")
	c, err := f.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, c.Facts.Accounting)
	require.Len(t, c.Partitions, 1)
	require.Positive(t, c.Partitions[0].CPUsPerNode)
	require.Greater(t, c.Partitions[0].MemoryPerNode, int64(1<<27))
}
