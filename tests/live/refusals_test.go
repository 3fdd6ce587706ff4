//go:build live

package live_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// TestRefusals: what can't be is refused in words, with an exit code that says whose fault it is, and leaves nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		profile string
		job     string
		code    int
		words   []string
		reason  string // of the workload; "": none was made
	}{
		"partition that doesn't exist": {profile: `partition = "nowhere"`, job: rig.Shell(1, "true", ""), code: 82, reason: "BACKEND_REJECTED",
			words: []string{"the scheduler refused the job", "invalid partition specified: nowhere", "hint: the profile's partition doesn't exist"}},
		"account that doesn't exist": {profile: `account = "nobodys"`, job: rig.Shell(1, "true", ""), code: 82, reason: "AUTHORIZATION_DENIED",
			words: []string{"Invalid account", "hint: the account is missing"}},
		"qos that doesn't exist": {profile: `qos = "golden"`, job: rig.Shell(1, "true", ""), code: 82, reason: "BACKEND_REJECTED",
			words: []string{"Invalid qos", "hint: the QoS doesn't exist"}},
		"GPUs that don't exist": {profile: "gpus_per_node = 1\ngpu_type = \"imaginary\"", job: rig.Shell(1, "true", ""), code: 82, reason: "BACKEND_REJECTED",
			words: []string{"hint: "}},
		"directive that doesn't exist": {profile: `directives = ["--frobnicate=1"]`, job: rig.Shell(1, "true", ""), code: 82, reason: "INVALID_SPEC",
			words: []string{"--frobnicate", "hint: "}},
		"more nodes than the profile allows": {job: rig.Shell(9, "true", ""), code: 81, words: []string{"nodes", "8"}},
		"longer than the profile allows":     {profile: `max_walltime = "1h"`, job: rig.Shell(1, "true", `walltime = "2h"`), code: 81, words: []string{"walltime", "1h"}},
		"a script of some MB":                {job: rig.Shell(1, "true", "setup = [\""+string(large())+"\"]"), code: 81, words: []string{"larger than 1 MiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile := "[profiles.default]\nmax_nodes = 8\n" + c.profile
			r := rig.New(t, rig.Options{Cluster: shared, Profiles: profile + "\n"})
			alice := r.Alice(t)
			for _, form := range [][]string{nil, {"--json"}} {
				ran := alice.TrySubmit(t, c.job, form...)
				require.Equal(t, c.code, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
				if form == nil {
					require.Empty(t, ran.Stdout)
					for _, word := range c.words {
						require.Contains(t, ran.Stderr, word)
					}
					continue
				}
				require.Equal(t, c.code, ran.Doc(t).Int("error", "exit_code"))
				require.NotEmpty(t, ran.Doc(t).Text("error", "message"))
			}
			all := alice.List(t)
			if c.reason == "" {
				require.Empty(t, all)
			}
			for _, w := range all {
				require.Equal(t, "FAILED", w.Phase(), "%s", w)
				require.Equal(t, c.reason, w.Text("reason"), "%s", w)
			}
			alice.RequireNothingMade(t)
		})
	}
}

// large is more text than a job file may have.
func large() []byte {
	text := make([]byte, 2<<20)
	for i := range text {
		text[i] = '#'
	}
	return text
}

// TestWhatCanNeverRun: Slurm 22.05 accepts what no node can do. It is told as such until it is cancelled; a newer one
// refuses it at once.
func TestWhatCanNeverRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ profile, job, word string }{
		"more nodes than there are":         {"max_nodes = 99", rig.Shell(99, "true", ""), "more than its partition has"},
		"longer than the partition allows":  {"max_nodes = 1", rig.Shell(1, "true", `walltime = "5h"`), "than its partition"},
		"more CPUs at once than a node has": {"max_nodes = 1\nmax_cpus_per_rank = 64", rig.Shell(1, "true", "[resources]\ncpus_per_rank = 64\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{Cluster: shared, Profiles: "[profiles.default]\n" + c.profile + "\n"})
			alice := r.Alice(t)
			ran := alice.TrySubmit(t, c.job, "--json")
			if ran.Code == 82 {
				require.NotEmpty(t, ran.Doc(t).Text("error", "hint"), ran.Stdout)
				alice.RequireNothingMade(t)
				return
			}
			require.Zero(t, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
			id := ran.Doc(t).Text("id")
			w := alice.AwaitStatus(t, id, "told to be unschedulable", func(d rig.Doc) bool { return d.Text("reason") == "UNSCHEDULABLE" || d.Over() })
			require.Equal(t, "PENDING", w.Phase(), "%s", w)
			require.Contains(t, w.Text("message"), c.word)
			require.Contains(t, w.Text("message"), "cancel")
			text := alice.Run(t, "status", id)
			require.Contains(t, text.Stdout, c.word)
			require.Zero(t, alice.Run(t, "cancel", id).Code)
			w = alice.AwaitEnd(t, id)
			require.Equal(t, "CANCELLED", w.Phase(), "%s", w)
			require.Contains(t, controller(t, shared, w.Text("job", "id"))["JobState"], "CANCELLED")
		})
	}
}

// TestCase12LimitsThatPass: a full quota is no fault of the job's.
func TestCase12LimitsThatPass(t *testing.T) {
	t.Parallel()
	shared.Slurm(t, "sacctmgr", "--immediate", "add", "qos", "one", "MaxSubmitJobsPerUser=1")
	shared.Slurm(t, "sacctmgr", "--immediate", "modify", "user", cluster.Alice, "set", "qos+=one")
	r := rig.New(t, rig.Options{Cluster: shared, Profiles: "[profiles.default]\nmax_nodes = 1\nqos = \"one\"\n"})
	alice := r.Alice(t)
	var first rig.Ran
	rig.Await(t, rig.Patience, "the controller to know the new QoS", func() bool {
		first = alice.TrySubmit(t, rig.Shell(1, "exec sleep 600", ""))
		return first.Code == 0
	})
	second := alice.TrySubmit(t, rig.Shell(1, "true", ""))
	require.Equal(t, 82, second.Code, second.Stderr)
	require.Contains(t, second.Stderr, "try again")
	all := alice.List(t)
	require.Equal(t, "POLICY_REJECTED", all[0].Text("reason"))
	require.Zero(t, alice.Run(t, "cancel", all[1].Text("id")).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, all[1].Text("id")).Phase())
}

// TestTroubles: with a part of Slurm down, submissions end in words and leave nothing, and what runs is left alone.
func TestTroubles(t *testing.T) {
	t.Parallel()
	own := cluster.Up(t, cluster.Options{Nodes: 1, Set: []string{"MessageTimeout=2"}})
	r := rig.New(t, rig.Options{Cluster: own})
	alice := r.Alice(t)
	long := alice.Submit(t, rig.Shell(1, `until test -e ../release; do sleep 0.2; done`, ""))
	alice.AwaitPhase(t, long, "ACTIVE")

	for _, daemon := range []string{"munged", "slurmctld"} {
		t.Run(daemon+" down", func(t *testing.T) {
			own.Stop(t, daemon)
			ran := alice.TrySubmit(t, rig.Shell(1, "true", ""))
			require.Equal(t, 83, ran.Code, ran.Stderr)
			require.Contains(t, ran.Stderr, "the scheduler doesn't answer")
			require.Contains(t, ran.Stderr, "hint: ")
			// Case 24: that nobody answers is no news of a job.
			rig.Await(t, rig.Patience, "the daemon to have missed an answer", func() bool {
				gateway := alice.Run(t, "status", "--json").Doc(t)
				scheduler := gateway.Text("gateway", "scheduler")
				return scheduler != "" && scheduler != "ok"
			})
			require.Equal(t, "ACTIVE", alice.Status(t, long).Phase())
			own.Heal(t)
		})
	}
	for _, w := range alice.List(t) {
		if w.Text("id") != long {
			require.Equal(t, "FAILED", w.Phase())
			require.Equal(t, "BACKEND_UNAVAILABLE", w.Text("reason"))
		}
	}
	runs, err := filepath.Glob(filepath.Join(alice.Home, ".openai4s", "run", "wl_*"))
	require.NoError(t, err)
	require.Len(t, runs, 1, "that of the job that runs")
	alice.Write(t, "release", "")
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, long).Phase())

	t.Run("daemon down", func(t *testing.T) {
		r.Daemon.Stop(t)
		ran := alice.TrySubmit(t, rig.Shell(1, "true", ""))
		require.Equal(t, 83, ran.Code)
		require.Contains(t, ran.Stderr, "hint: start it with: openai4s-gateway --site "+r.Site)
	})
}
