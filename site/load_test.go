package site

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// env is an environment for load.
func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// write puts text into a file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "site.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func asError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	require.True(t, errors.As(err, &e), "%T %v is no *Error", err, err)
	return e
}

func TestLoadEveryKey(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	s, err := load("testdata/every-key.toml", env(), "")
	require.NoError(t, err)
	path, _ := filepath.Abs("testdata/every-key.toml")
	assert.Equal(t, path, s.Path)
	assert.Len(t, s.SHA256, 64)
	assert.False(t, s.IsBuiltin())
	assert.Equal(t, "lab", s.Name)
	assert.Equal(t, "slurm", s.Scheduler)
	assert.Equal(t, "lab4s", s.JobPrefix)
	assert.Equal(t, "/home/ann/.openai4s/elsewhere", s.RuntimeDir)
	assert.Equal(t, "/opt/openai4s/1.4/bin/openai4s-agent", s.Agent)
	assert.Equal(t, map[string]string{"sbatch": "/usr/local/slurm/bin/sbatch"}, s.Commands)
	assert.Equal(t, []string{"LD_LIBRARY_PATH"}, s.AllowEnv)
	const day = 24 * time.Hour
	assert.Equal(t, Gateway{
		Listen: "0.0.0.0:8761", Advertise: []string{"head-ib0:8761", "[fd00::1]:8761"}, Control: "head:8762", ControlPins: []string{"sha256:" + strings.Repeat("ab", 32)}, StateDir: "/srv/openai4s",
		TLS: "optional", Attest: "munge", HandshakeTimeout: 20 * time.Second, DialTimeout: 5 * time.Minute, Pending: 600, PerSource: 12, OrphanTTL: 20 * time.Minute,
		RankLostAfter: 6 * time.Minute, CredentialTTL: 14 * day, AbsenceDeadline: 15 * time.Minute, Cancel: true, Admins: []string{"hpcadm"},
		Metrics: "127.0.0.1:9761", HistoryTTL: 60 * day, MaxLive: 50, MaxCredentials: 5000,
	}, s.Gateway)
	assert.Equal(t, map[string]Profile{"gpu-batch": {
		Name: "gpu-batch", Description: "Long unattended GPU runs", RequireAccount: true, MaxNodes: 64, MaxRanksPerNode: 8, CPUsPerRank: 4, MaxCPUsPerRank: 16,
		MemoryPerNode: 64 << 30, MaxMemoryPerNode: 256 << 30, GPUsPerNode: 4, Walltime: 4 * time.Hour, MaxWalltime: 2 * day,
		Prologue: []string{"module load cuda"}, IdleTTL: 2 * time.Hour, MaxLifetime: 47 * time.Hour,
		Placement: scheduler.Placement{Partition: "gpu", QoS: "normal", Account: "proj1", GPUStyle: "gpus", GPUType: "a100",
			Directives: []string{"--constraint=a100", "-C a100", "--mail-type=END"}},
	}}, s.Profiles)
}

func TestLoadDefaults(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	s, err := load(write(t, "[site]\nscheduler = \"slurm\"\n[profiles.p]\nmax_nodes = 2\n"), env(), "")
	require.NoError(t, err)
	const day = 24 * time.Hour
	assert.Equal(t, "site", s.Name)
	assert.Equal(t, "openai4s", s.JobPrefix)
	assert.Equal(t, "/home/ann/.openai4s/run", s.RuntimeDir)
	assert.Empty(t, s.Agent)
	assert.Empty(t, s.Commands)
	assert.Empty(t, s.AllowEnv)
	assert.Equal(t, Gateway{
		Control: "/run/openai4s/control.sock", StateDir: "/var/lib/openai4s", TLS: "required", Attest: "none", HandshakeTimeout: 30 * time.Second,
		DialTimeout: 10 * time.Minute, OrphanTTL: 15 * time.Minute, RankLostAfter: 5 * time.Minute, CredentialTTL: 30 * day,
		AbsenceDeadline: 10 * time.Minute, HistoryTTL: 30 * day, MaxLive: 1000, MaxCredentials: 1_000_000,
	}, s.Gateway)
	assert.Equal(t, Profile{Name: "p", MaxNodes: 2, MaxRanksPerNode: 1, Walltime: time.Hour}, s.Profiles["p"])
}

func TestLoadPBS(t *testing.T) {
	s, err := load("testdata/pbs.toml", env(), "")
	require.NoError(t, err)
	p := s.Profiles["wide"]
	assert.Equal(t, scheduler.Placement{Queue: "workq", Project: "p1", Account: "a1", Place: "scatter:excl", SelectExtra: "ngpus=4:arch=linux",
		Directives: []string{"-l software=1", "-m abe", "-W group_list=g1"}}, p.Placement)
	assert.Equal(t, 30*time.Minute, p.Walltime, "the default never exceeds the ceiling")
}

func TestCase17PlaceDefaultsToScatter(t *testing.T) {
	s, err := load(write(t, "[site]\nscheduler = \"pbs\"\n[profiles.p]\nmax_nodes = 2\n"), env(), "")
	require.NoError(t, err)
	assert.Equal(t, "scatter", s.Profiles["p"].Placement.Place)
}

func TestCase20StyleOfGPUs(t *testing.T) {
	for _, tc := range []struct{ keys, want string }{
		{"gpus_per_node = 4", "gres"}, {"gpus_per_node = 4\ngpu_style = \"gpus\"", "gpus"}, {"gpus_per_node = 4\ngpu_style = \"gres\"", "gres"}, {"", ""},
	} {
		s, err := load(write(t, "[site]\nscheduler = \"slurm\"\n[profiles.p]\nmax_nodes = 2\n"+tc.keys), env(), "")
		require.NoError(t, err)
		assert.Equal(t, tc.want, s.Profiles["p"].Placement.GPUStyle, tc.keys)
	}
}

func TestLoadLocalFile(t *testing.T) {
	s, err := load(write(t, "[site]\nscheduler = \"local\"\n"), env(), "")
	require.NoError(t, err)
	assert.Empty(t, s.Gateway.Control, "the command's own gateway is used")
	assert.Empty(t, s.Gateway.StateDir)
	assert.Equal(t, Builtin().Profiles, s.Profiles)
	assert.False(t, s.IsBuiltin())
}

func TestBuiltin(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	s := Builtin()
	assert.True(t, s.IsBuiltin())
	assert.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", s.SHA256)
	assert.Equal(t, "local", s.Name)
	assert.Equal(t, "local", s.Scheduler)
	assert.Equal(t, "/home/ann/.openai4s/run", s.RuntimeDir)
	assert.Equal(t, "127.0.0.1:0", s.Gateway.Listen)
	assert.Empty(t, s.Gateway.Advertise)
	assert.Equal(t, "required", s.Gateway.TLS)
	assert.Equal(t, []string{"default"}, s.ProfileNames())
	widest, profile := s.Widest()
	assert.Equal(t, 4096, widest)
	assert.Equal(t, "default", profile)
	p := s.Profiles["default"]
	assert.Equal(t, time.Hour, p.Walltime)
	assert.Equal(t, 24*time.Hour, p.MaxWalltime)
	assert.Empty(t, s.Lint())
}

func TestNoHomeFolder(t *testing.T) {
	t.Setenv("HOME", "relative") // not usable; the user database is asked
	home, err := homeDir()
	if err == nil {
		assert.True(t, filepath.IsAbs(home))
		assert.Equal(t, filepath.Join(home, ".openai4s/run"), Builtin().RuntimeDir)
	}
	s := Builtin()
	s.RuntimeDir = ""
	_, err = s.Resolve(scheduler.Job{Name: "x", Workdir: "/"})
	assert.Equal(t, "site.runtime_dir", string(asError(t, err).Key))
}

func TestWhichFile(t *testing.T) {
	local := func(name string) string { return write(t, "[site]\nscheduler = \"local\"\nname = \""+name+"\"\n") }
	named, byEnv, system := local("named"), local("by-env"), local("system")
	none := filepath.Join(t.TempDir(), "none.toml")
	for _, tc := range []struct{ name, path, env, system, want string }{
		{"the named one", named, byEnv, system, "named"},
		{"the variable's", "", byEnv, system, "by-env"},
		{"the system's", "", "", system, "system"},
		{"none at all", "", "", none, "local"},
	} {
		s, err := load(tc.path, env(envSite, tc.env), tc.system)
		require.NoError(t, err, tc.name)
		assert.Equal(t, tc.want, s.Name, tc.name)
	}
	_, err := load(none, env(envSite, byEnv), system)
	assert.ErrorIs(t, err, os.ErrNotExist, "a named file must be there")
	_, err = load("", env(envSite, none), system)
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Equal(t, "OPENAI4S_SITE names it: correct or unset that", asError(t, err).Hint)
	_, err = load("", env(), filepath.Dir(system))
	assert.ErrorContains(t, err, "is a folder", "a system file that can't be read is no reason for the built-in site")
}

func TestEnvironmentWins(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{envListen, "9000", ":9000"}, {envListen, "10.0.0.1:9000", "10.0.0.1:9000"}, {envListen, "[::1]:0", "[::1]:0"},
		{envAdvertise, "a:1,b:2", "a:1 b:2"}, {envAdvertise, " [fd00::1]:1 ", "[fd00::1]:1"},
	} {
		s, err := load("testdata/every-key.toml", env(tc.name, tc.value), "")
		require.NoError(t, err, tc.value)
		got, key := s.Gateway.Listen, "gateway.listen"
		if tc.name == envAdvertise {
			got, key = join(s.Gateway.Advertise), "gateway.advertise"
		}
		assert.Equal(t, tc.want, got)
		assert.Equal(t, "environment "+tc.name, setting(t, s, key).Source)
	}
	for _, tc := range []struct{ name, value, msg, hint string }{
		{envListen, "x", `OPENAI4S_WORKER_LISTEN "x" has no port`, `"0.0.0.0:8761" or "8761"`},
		{envListen, "70000", `OPENAI4S_WORKER_LISTEN "70000" has no port from 0 to 65535`, "8761"},
		{envListen, "fd00::1", "is an IPv6 address without brackets", "8761"},
		{envAdvertise, "a:1,b", `OPENAI4S_WORKER_ADVERTISE "b" has no port`, "head-ib0:8761"},
		{envAdvertise, ",", "OPENAI4S_WORKER_ADVERTISE names no address", "head-ib0:8761"},
		{envAdvertise, "0.0.0.0:1", "is no address that anybody can dial", "compute nodes"},
	} {
		_, err := load("testdata/every-key.toml", env(tc.name, tc.value), "")
		e := asError(t, err)
		assert.Contains(t, e.Msg, tc.msg)
		assert.Contains(t, e.Hint, tc.hint)
		assert.Empty(t, e.File, "the file isn't to blame")
	}
	t.Setenv(envListen, "9000")
	t.Setenv(envSite, "testdata/every-key.toml")
	s, err := Load("")
	require.NoError(t, err)
	assert.Equal(t, ":9000", s.Gateway.Listen)
}

func join(list []string) string {
	out := ""
	for i, v := range list {
		if i > 0 {
			out += " "
		}
		out += v
	}
	return out
}

func TestBounds(t *testing.T) {
	profile := func(nodes, ranks int) Profile { return Profile{MaxNodes: nodes, MaxRanksPerNode: ranks} }
	for _, tc := range []struct {
		name               string
		profiles           map[string]Profile
		pending, perSource int
		widest             int
		profile            string
		bound, source      int
	}{
		{"one rank", map[string]Profile{"a": profile(1, 1)}, 0, 0, 1, "a", 64, 2},
		{"just under the least", map[string]Profile{"a": profile(51, 1)}, 0, 0, 51, "a", 64, 2},
		{"just over the least", map[string]Profile{"a": profile(52, 1)}, 0, 0, 52, "a", 65, 2},
		{"rounded up", map[string]Profile{"a": profile(101, 1)}, 0, 0, 101, "a", 127, 2},
		{"the reference's", map[string]Profile{"a": profile(64, 8)}, 0, 0, 512, "a", 640, 10},
		{"the widest of several", map[string]Profile{"a": profile(100, 2), "b": profile(4, 64), "c": profile(1, 128)}, 0, 0, 256, "b", 320, 160},
		{"equals go by name", map[string]Profile{"b": profile(8, 8), "a": profile(64, 1)}, 0, 0, 64, "a", 80, 10},
		{"as written", map[string]Profile{"a": profile(64, 8)}, 512, 3, 512, "a", 512, 3},
		{"4,096 ranks", map[string]Profile{"a": profile(4096, 1)}, 0, 0, 4096, "a", 5120, 2},
		{"none", nil, 0, 0, 0, "", 64, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Site{Profiles: tc.profiles, Gateway: Gateway{Pending: tc.pending, PerSource: tc.perSource}}
			widest, profile := s.Widest()
			assert.Equal(t, tc.widest, widest)
			assert.Equal(t, tc.profile, profile)
			assert.Equal(t, tc.bound, s.HandshakeBound())
			assert.Equal(t, tc.source, s.PerSource())
		})
	}
}
