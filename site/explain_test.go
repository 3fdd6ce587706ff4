package site

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func setting(t *testing.T, s Site, key string) Setting {
	t.Helper()
	for _, e := range s.Explain() {
		if e.Key == key {
			return e
		}
	}
	t.Fatalf("%s isn't explained", key)
	return Setting{}
}

func TestExplain(t *testing.T) {
	path := write(t, "[site]\nscheduler = \"slurm\"\n[gateway]\npending_handshakes = 0\nlisten = \"8761\"\n[profiles.gpu-batch]\nmax_nodes = 64\nmax_ranks_per_node = 8\n"+
		"max_walltime = \"30m\"\nmemory_per_node = \"64GiB\"\n[profiles.a]\nmax_nodes = 1\n")
	s, err := load(path, env(envAdvertise, "head:1"), "")
	require.NoError(t, err)
	for _, tc := range []struct{ key, value, source string }{
		{"site.scheduler", `"slurm"`, path + ":2"},
		{"site.name", `"site"`, "default"},
		{"gateway.listen", `":8761"`, path + ":5"},
		{"gateway.advertise", `["head:1"]`, "environment OPENAI4S_WORKER_ADVERTISE"},
		{"gateway.pending_handshakes", "640", "derived: widest allocation 64 × 8 = 512 ranks (profile gpu-batch) + 25 %"},
		{"gateway.pending_per_source", "10", "derived: most ranks of a node, 8, + 25 %"},
		{"profiles.gpu-batch.max_nodes", "64", path + ":7"},
		{"profiles.gpu-batch.walltime", `"30m"`, "derived: max_walltime"},
		{"profiles.gpu-batch.max_memory_per_node", `""`, "default"},
		{"profiles.a.walltime", `"1h"`, "default"},
	} {
		got := setting(t, s, tc.key)
		assert.Equal(t, tc.value, got.Value, tc.key)
		assert.Equal(t, tc.source, got.Source, tc.key)
		assert.NotEmpty(t, got.Note, tc.key)
	}
	small := Builtin()
	small.Profiles = map[string]Profile{"x": {Name: "x", MaxNodes: 2, MaxRanksPerNode: 1}}
	assert.Equal(t, "derived: widest allocation 2 × 1 = 2 ranks (profile x) + 25 %, at least 64", setting(t, small, "gateway.pending_handshakes").Source)
	assert.Equal(t, "built in", setting(t, Builtin(), "site.scheduler").Source)
	assert.Equal(t, "built in", setting(t, Builtin(), "profiles.default.max_nodes").Source)
}

// Every key that a file can say is explained, and the reference names no other.
func TestExplainKnowsEveryKey(t *testing.T) {
	want := map[string]bool{}
	for prefix, raw := range map[string]any{"site.": rawSite{}, "gateway.": rawGateway{}, "": rawProfile{}} {
		for _, tag := range tags(raw) {
			want[prefix+tag] = true
		}
	}
	got := map[string]bool{}
	for _, e := range siteEntries {
		got[e.name] = true
	}
	for _, e := range profileEntries {
		got[e.name] = true
	}
	assert.Equal(t, want, got)
}

func TestLint(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(program, nil, 0o755))
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o644))
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o755))
	require.NoError(t, os.Chmod(open, 0o777))
	good := "listen = \"0.0.0.0:8761\"\nadvertise = [\"head:8761\"]\n"
	for _, tc := range []struct {
		name, text     string
		severity, key  string
		find, remedies string
	}{
		{"no listen", slurmHead + profileP, SeverityError, "gateway.listen", "no rank can dial in", "listen ="},
		{"listen on loopback", slurmHead + profileP + "[gateway]\nlisten = \"127.0.0.1:1\" #!\n", SeverityError, "gateway.listen", "only this host", "compute nodes"},
		{"listen on a free port", slurmHead + profileP + "[gateway]\nlisten = \"0\" #!\n", SeverityWarning, "gateway.listen", "another port", "choose"},
		{"nothing advertised", slurmHead + profileP + "[gateway]\nlisten = \"1\"\n", SeverityNote, "gateway.advertise", "own addresses", "network"},
		{"loopback advertised", slurmHead + profileP + "[gateway]\nlisten = \"1\"\nadvertise = [\"localhost:1\"] #!\n", SeverityWarning, "gateway.advertise[0]", "the node itself", "compute nodes"},
		{"IPv6 loopback advertised", slurmHead + profileP + "[gateway]\nlisten = \"1\"\nadvertise = [\"a:1\", \"[::1]:1\"] #!\n", SeverityWarning, "gateway.advertise[1]", "the node itself", ""},
		{"another port advertised", slurmHead + profileP + "[gateway]\nlisten = \"1\"\nadvertise = [\"a:2\"] #!\n", SeverityWarning, "gateway.advertise[0]", "another port than listen", "forwarded"},
		{"TLS off", slurmHead + profileP + "[gateway]\n" + good + "tls = \"off\" #!\n", SeverityWarning, "gateway.tls", "in the clear", "required"},
		{"TLS optional", slurmHead + profileP + "[gateway]\n" + good + "tls = \"optional\" #!\n", SeverityNote, "gateway.tls", "in the clear", "required"},
		{"control in /tmp", slurmHead + profileP + "[gateway]\n" + good + "control = \"/tmp/c.sock\" #!\n", SeverityWarning, "gateway.control", "anybody may write in /tmp", "/run/openai4s"},
		{"control in an open folder", slurmHead + profileP + "[gateway]\n" + good + "control = \"" + open + "/c.sock\" #!\n", SeverityWarning, "gateway.control", "anybody may write", ""},
		{"control over TCP without a pin", slurmHead + profileP + "[gateway]\n" + good + "control = \"head:8762\"\n", SeverityError, "gateway.control_pins", "another program", "openai4s-gateway pin"},
		{"control over TCP on loopback", slurmHead + profileP + "[gateway]\n" + good + "control = \"127.0.0.1:8762\" #!\n", SeverityWarning, "gateway.control", "only this host", "socket"},
		{"state in /var/tmp", slurmHead + profileP + "[gateway]\n" + good + "state_dir = \"/var/tmp/x\" #!\n", SeverityWarning, "gateway.state_dir", "emptied", "/var/lib"},
		{"run folder in /tmp", slurmHead + "runtime_dir = \"/tmp/x\" #!\n" + profileP, SeverityWarning, "site.runtime_dir", "each node's own", "shared"},
		{"metrics for all", slurmHead + profileP + "[gateway]\n" + good + "metrics = \"9761\" #!\n", SeverityNote, "gateway.metrics", "every host", "127.0.0.1"},
		{"short-lived credentials", slurmHead + profileP + "[gateway]\n" + good + "credential_ttl = \"2h\" #!\n", SeverityWarning, "gateway.credential_ttl", "queues longer than 2h", "raise"},
		{"injection allowed", slurmHead + "allow_env = [\"LD_PRELOAD\"] #!\n" + profileP, SeverityNote, "site.allow_env", "LD_PRELOAD", ""},
		{"no such agent", slurmHead + "agent = \"/no/such/agent\" #!\n" + profileP, SeverityWarning, "site.agent", "isn't there", "install"},
		{"agent that can't run", slurmHead + "agent = \"" + plain + "\" #!\n" + profileP, SeverityWarning, "site.agent", "can't be run", "program"},
		{"no such command", slurmHead + "commands.sbatch = \"/no/sbatch\" #!\n" + profileP, SeverityWarning, "site.commands.sbatch", "isn't there", ""},
		{"account required, none named", slurmHead + profileP + "require_account = true #!\n", SeverityWarning, "profiles.p.require_account", "refuses every job", "account"},
		{"GPU type without GPUs", slurmHead + profileP + "gpu_type = \"a100\" #!\n", SeverityWarning, "profiles.p.gpu_type", "does nothing", "gpus_per_node"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := load(write(t, tc.text), env(), "")
			require.NoError(t, err)
			var hit []Finding
			for _, f := range s.Lint() {
				if f.Key == tc.key && strings.Contains(f.Text, tc.find) {
					hit = append(hit, f)
				}
			}
			require.Len(t, hit, 1, "%v", s.Lint())
			assert.Equal(t, tc.severity, hit[0].Severity)
			assert.Equal(t, markedLine(tc.text), hit[0].Line)
			assert.Contains(t, hit[0].Remedy, tc.remedies)
		})
	}
	t.Run("attestation", func(t *testing.T) {
		attest := slurmHead + "agent = \"" + program + "\"\n" + profileP + "[gateway]\n" + good + "attest = \"munge\" #!\n"
		found := func(text string) []Finding {
			s, err := load(write(t, text), env(), "")
			require.NoError(t, err)
			return s.Lint()
		}
		t.Setenv("PATH", dir)
		all := found(attest)
		require.Len(t, all, 2)
		for i, says := range []string{"munge, which every compute node needs", "unmunge, which the gateway's host needs"} {
			assert.Contains(t, all[i].Text, says)
			assert.Equal(t, []any{SeverityWarning, "gateway.attest", markedLine(attest)}, []any{all[i].Severity, all[i].Key, all[i].Line})
		}
		named := strings.Replace(attest, "[profiles", "commands = { munge = \""+program+"\", unmunge = \"/no/such/unmunge\" }\n[profiles", 1)
		all = found(named)
		require.Len(t, all, 1)
		assert.Equal(t, "site.commands.unmunge", all[0].Key)
		all = found(strings.Replace(named, "/no/such/unmunge", program, 1) + "tls = \"optional\"\n")
		require.Len(t, all, 1, "%v", all)
		assert.Contains(t, all[0].Text, "workers without TLS can't attest and are refused")
	})
	t.Run("nothing to say", func(t *testing.T) {
		s, err := load(write(t, slurmHead+"agent = \""+program+"\"\n"+profileP+"[gateway]\n"+good), env(), "")
		require.NoError(t, err)
		assert.Empty(t, s.Lint())
	})
	t.Run("a file that others may change", func(t *testing.T) {
		path := write(t, localHead)
		require.NoError(t, os.Chmod(path, 0o666))
		s, err := load(path, env(), "")
		require.NoError(t, err)
		require.Len(t, s.Lint(), 1)
		assert.Contains(t, s.Lint()[0].Text, "may change")
	})
}
