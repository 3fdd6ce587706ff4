//go:build !live

package pbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/rig"
)

// What can't be is refused in words, with an exit code that says whose fault it is, and leaves nothing.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		profile string
		job     string
		config  func(*fakepbs.Config)
		code    int
		reason  string // of the workload; "": none was made
		words   []string
	}{
		"queue that doesn't exist": {profile: `queue = "nowhere"`, code: 82, reason: "BACKEND_REJECTED",
			words: []string{"the scheduler refused the job", "Unknown queue", "hint: the profile's queue is not one of this server"}},
		"queue for others": {profile: `queue = "acl"`, code: 82, reason: "AUTHORIZATION_DENIED",
			words: []string{"Unauthorized Request", "access list"}},
		"queue that takes nothing": {profile: `queue = "disabled"`, code: 82, reason: "BACKEND_REJECTED",
			words: []string{"Queue is not enabled", "try again"}},
		"longer than the queue allows": {profile: `queue = "short"`, job: `walltime = "11m"`, code: 82, reason: "POLICY_REJECTED",
			words: []string{"Job violates queue and/or server resource limits", "ask for less"}},
		"resource that doesn't exist": {profile: `select_extra = "golden=1"`, code: 82, reason: "BACKEND_REJECTED",
			words: []string{"Unknown resource", "select_extra"}},
		"a hook says no": {code: 82, reason: "POLICY_REJECTED",
			config: func(c *fakepbs.Config) {
				c.HookReject = "kept out by site policy:\nproject is missing (use -P)"
			},
			words: []string{"kept out by site policy:", "project is missing (use -P)", "a hook of the site"}},
		"server down": {code: 83, reason: "BACKEND_UNAVAILABLE", config: func(c *fakepbs.Config) { c.Down = true },
			words: []string{"the scheduler doesn't answer", "hint: "}},
		"more nodes than the profile allows": {job: "nodes = 9", code: 81, words: []string{"nodes", "8"}},
		"longer than the profile allows":     {profile: `max_walltime = "1h"`, job: `walltime = "2h"`, code: 81, words: []string{"walltime", "1h"}},
		"Torque": {code: 82, reason: "BACKEND_REJECTED", config: func(c *fakepbs.Config) { c.Torque = true },
			words: []string{"not supported: needs PBS Pro 19 or OpenPBS, this is Torque 6.1.2"}},
		"old PBS Pro": {code: 82, reason: "BACKEND_REJECTED", config: func(c *fakepbs.Config) { c.Version = "PBSPro_13.1.0.160576" },
			words: []string{"not supported: needs PBS Pro 19 or OpenPBS, this is PBS 13.1.0.160576"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := newSite(t, rig.Options{Profiles: "[profiles.default]\nmax_nodes = 8\n" + c.profile + "\n"}, asItIs)
			alice := r.Alice(t)
			if c.config != nil {
				config := fakepbs.Default()
				c.config(&config)
				f.Configure(t, config)
			}
			job := "command = [\"true\"]\n" + c.job + "\n"
			for _, form := range [][]string{nil, {"--json"}} {
				ran := alice.TrySubmit(t, job, form...)
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
			f.Configure(t, fakepbs.Default())
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

// A full quota is no fault of the job's.
func TestCase12LimitsThatPass(t *testing.T) {
	r, _ := newSite(t, rig.Options{Profiles: "[profiles.default]\nmax_nodes = 1\nqueue = \"limited\"\n"}, asItIs)
	alice := r.Alice(t)
	first := alice.Submit(t, rig.Shell(1, "exec sleep 600", "[signal]\ngrace = \"2s\""))
	second := alice.TrySubmit(t, rig.Shell(1, "true", ""))
	require.Equal(t, 82, second.Code, second.Stderr)
	require.Contains(t, second.Stderr, "try again")
	require.Equal(t, "POLICY_REJECTED", alice.List(t)[0].Text("reason"))
	require.Zero(t, alice.Run(t, "cancel", first).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, first).Phase())
}

// PBS accepts what the cluster can never do. It is told as such until it is cancelled.
func TestWhatCanNeverRun(t *testing.T) {
	r, _ := newSite(t, rig.Options{Profiles: "[profiles.default]\nmax_nodes = 99\nqueue = \"workq\"\n"}, asItIs)
	alice := r.Alice(t)
	id := alice.Submit(t, "nodes = 50\ncommand = [\"true\"]\n")
	w := alice.AwaitStatus(t, id, "told to be unschedulable", func(d rig.Doc) bool { return d.Text("reason") == "UNSCHEDULABLE" || d.Over() })
	require.Equal(t, "PENDING", w.Phase(), "%s", w)
	require.Contains(t, w.Text("message"), "Not enough total nodes available")
	require.Contains(t, w.Text("message"), "cancel")
	require.Contains(t, alice.Run(t, "status", id).Stdout, "Not enough total nodes available")
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, id).Phase())
	require.Equal(t, "91", r.JobRecord(t, w.Text("job", "id"))["substate"])
}
