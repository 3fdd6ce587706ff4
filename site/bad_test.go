package site

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// markedLine is the line that ends with "#!", 0 if none does.
func markedLine(text string) int {
	for i, line := range strings.Split(text, "\n") {
		if strings.HasSuffix(line, "#!") {
			return i + 1
		}
	}
	return 0
}

// badSite is a file that must be refused: "#!" marks the line that the error names.
type badSite struct{ name, text, key, msg, hint string }

const (
	slurmHead = "[site]\nscheduler = \"slurm\"\n"
	pbsHead   = "[site]\nscheduler = \"pbs\"\n"
	localHead = "[site]\nscheduler = \"local\"\n"
	profileP  = "[profiles.p]\nmax_nodes = 4\n"
)

var badSites = []badSite{
	{"no scheduler", "[site] #!\nname = \"x\"\n" + profileP, "site.scheduler", "is required", `"slurm", "pbs" or "local"`},
	{"an empty file", "", "site.scheduler", "is required", "[site]"},
	{"unknown scheduler", "[site]\nscheduler = \"slrum\" #!\n" + profileP, "site.scheduler", `"slrum" is no scheduler known here`, `did you mean "slurm"?`},
	{"unknown table", slurmHead + profileP + "[gatway] #!\n", "gatway", "unknown key", "did you mean gateway?"},
	{"unknown key", slurmHead + "nam = \"x\" #!\n" + profileP, "site.nam", "unknown key", "did you mean name?"},
	{"key in capitals", slurmHead + "Name = \"x\" #!\n" + profileP, "site.Name", "unknown key", "did you mean name?"},
	{"dotted unknown key", slurmHead + profileP + "[gateway]\ntls.mode = \"off\" #!\n", "gateway.tls", "must be text, not a table", "quotes"},
	{"site name with a slash", slurmHead + "name = \"../x\" #!\n" + profileP, "site.name", `"../x" is not a site's name`, "letters"},
	{"prefix that begins with a digit", slurmHead + "job_name_prefix = \"4s\" #!\n" + profileP, "site.job_name_prefix", `"4s" can't begin a job's name`, "letter"},
	{"prefix with a per cent sign", slurmHead + "job_name_prefix = \"a%j\" #!\n" + profileP, "site.job_name_prefix", "can't begin", "letter"},
	{"relative runtime_dir", slurmHead + "runtime_dir = \"run\" #!\n" + profileP, "site.runtime_dir", `"run" is not an absolute path`, `"~/"`},
	{"runtime_dir with a variable", slurmHead + "runtime_dir = \"$HOME/run\" #!\n" + profileP, "site.runtime_dir", "is not an absolute path", "variables are not expanded"},
	{"runtime_dir of another user", slurmHead + "runtime_dir = \"~bob/run\" #!\n" + profileP, "site.runtime_dir", "names another user's home", "absolute"},
	{"runtime_dir with a line end", slurmHead + "runtime_dir = \"/a\\nb\" #!\n" + profileP, "site.runtime_dir", "holds a control character", ""},
	{"relative agent", slurmHead + "agent = \"bin/agent\" #!\n" + profileP, "site.agent", "is not an absolute path", ""},
	{"relative command", slurmHead + "commands = { sbatch = \"sbatch\" } #!\n" + profileP, "site.commands.sbatch", `"sbatch" is not an absolute path`, "root"},
	{"unknown command", slurmHead + "[site.commands]\nsbtach = \"/bin/sbatch\" #!\n" + profileP, "site.commands.sbtach", "is no command that a slurm site runs", `did you mean "sbatch"?`},
	{"command of another scheduler", pbsHead + "commands.squeue = \"/bin/squeue\" #!\n" + profileP, "site.commands.squeue", "is no command that a pbs site runs", "known: "},
	{"pattern in allow_env", slurmHead + "allow_env = [\"LD_*\"] #!\n" + profileP, "site.allow_env[0]", `"LD_*" is not a variable's name`, "without patterns"},
	{"listen without a port", slurmHead + profileP + "[gateway]\nlisten = \"0.0.0.0\" #!\n", "gateway.listen", `"0.0.0.0" has no port`, "8761"},
	{"listen on bare IPv6", slurmHead + profileP + "[gateway]\nlisten = \"::1:8761\" #!\n", "gateway.listen", "is an IPv6 address without brackets and port", "8761"},
	{"listen on too high a port", slurmHead + profileP + "[gateway]\nlisten = \"a:65536\" #!\n", "gateway.listen", "has no port from 0 to 65535", "8761"},
	{"listen on a service's name", slurmHead + profileP + "[gateway]\nlisten = \"a:http\" #!\n", "gateway.listen", "has no port from 0 to 65535", ""},
	{"listen on a number", slurmHead + profileP + "[gateway]\nlisten = 8761 #!\n", "gateway.listen", "must be text, not a number", "quotes"},
	{"metrics without a port", slurmHead + profileP + "[gateway]\nmetrics = \"localhost\" #!\n", "gateway.metrics", "has no port", ""},
	{"advertise as text", slurmHead + profileP + "[gateway]\nadvertise = \"head:8761\" #!\n", "gateway.advertise", "must be a list, not text", `["head:8761"]`},
	{"advertise without a port", slurmHead + profileP + "[gateway]\nadvertise = [\"head:1\",\n\"head\" #!\n]\n", "gateway.advertise[1]", `"head" has no port`, "head-ib0:8761"},
	{"advertise on port 0", slurmHead + profileP + "[gateway]\nadvertise = [\"head:0\"] #!\n", "gateway.advertise[0]", "has no port from 1 to 65535", ""},
	{"advertise without a host", slurmHead + profileP + "[gateway]\nadvertise = [\":8761\"] #!\n", "gateway.advertise[0]", "names no host", ""},
	{"advertise the wildcard", slurmHead + profileP + "[gateway]\nadvertise = [\"[::]:8761\"] #!\n", "gateway.advertise[0]", "is no address that anybody can dial", "compute nodes"},
	{"advertise a URL", slurmHead + profileP + "[gateway]\nadvertise = [\"http://head:8761\"] #!\n", "gateway.advertise[0]", "more than one colon", "host:port"},
	{"advertise twice", slurmHead + profileP + "[gateway]\nadvertise = [\"head:1\", \"head:01\"] #!\n", "gateway.advertise[1]", "stands twice", "once"},
	{"advertise a bad host", slurmHead + profileP + "[gateway]\nadvertise = [\"he ad:1\"] #!\n", "gateway.advertise[0]", "has no valid host name", ""},
	{"relative control", slurmHead + profileP + "[gateway]\ncontrol = \"control.sock\" #!\n", "gateway.control", "is not an absolute path", ""},
	{"control too long for a socket", slurmHead + profileP + "[gateway]\ncontrol = \"/" + strings.Repeat("x", 107) + "\" #!\n", "gateway.control", "at most 107 bytes, this one has 108", "shorter"},
	{"control on another site's host", localHead + "[gateway]\ncontrol = \"head:8762\" #!\n", "gateway.control", "processes of this machine", "name a socket"},
	{"control without a port", slurmHead + profileP + "[gateway]\ncontrol = \"head:\" #!\n", "gateway.control", "has no port from 1 to 65535", "head:8762"},
	{"control without a host", slurmHead + profileP + "[gateway]\ncontrol = \":8762\" #!\n", "gateway.control", "names no host", "head:8762"},
	{"control beside too deep a folder", slurmHead + profileP + "[gateway]\ncontrol = \"head:1\"\nstate_dir = \"/" + strings.Repeat("x", 100) + "\" #!\n", "gateway.state_dir", "at most 107 bytes", "shorter"},
	{"pin of a socket", slurmHead + profileP + "[gateway]\ncontrol_pins = [\"sha256:" + strings.Repeat("0", 64) + "\"] #!\n", "gateway.control_pins", "needs no pin", "host:port"},
	{"pin that is none", slurmHead + profileP + "[gateway]\ncontrol = \"head:1\"\ncontrol_pins = [\"sha256:xy\"] #!\n", "gateway.control_pins[0]", "is no pin", "openai4s-gateway pin"},
	{"credentials for less than one job", slurmHead + "[gateway]\nmax_credentials = 511 #!\n[profiles.p]\nmax_nodes = 64\nmax_ranks_per_node = 8\n", "gateway.max_credentials", "511 is below the 512 ranks", "512 or more"},
	{"unknown TLS mode", slurmHead + profileP + "[gateway]\ntls = \"require\" #!\n", "gateway.tls", `"require" is no TLS mode`, `did you mean "required"?`},
	{"TLS as a flag", slurmHead + profileP + "[gateway]\ntls = true #!\n", "gateway.tls", "must be text, not a truth value", "quotes"},
	{"unknown attestation", slurmHead + profileP + "[gateway]\nattest = \"mung\" #!\n", "gateway.attest", `"mung" is no attestation known here`, `did you mean "munge"?`},
	{"attestation without TLS", slurmHead + profileP + "[gateway]\nattest = \"munge\" #!\ntls = \"off\"\n", "gateway.attest", "bound to the TLS connection, and tls is off", `tls = "required"`},
	{"attestation as a flag", slurmHead + profileP + "[gateway]\nattest = true #!\n", "gateway.attest", "must be text, not a truth value", "quotes"},
	{"command of no local site", localHead + "commands.sbatch = \"/bin/sbatch\" #!\n" + profileP, "site.commands.sbatch", "is no command that a local site runs", "known: munge, unmunge"},
	{"timeout without a unit", slurmHead + profileP + "[gateway]\nhandshake_timeout = 30 #!\n", "gateway.handshake_timeout", "not the number 30", `"30s" for seconds`},
	{"timeout of nothing", slurmHead + profileP + "[gateway]\nhandshake_timeout = \"0s\" #!\n", "gateway.handshake_timeout", "0s is too short, it must be at least 1s", ""},
	{"timeout of days", slurmHead + profileP + "[gateway]\nhandshake_timeout = \"2d\" #!\n", "gateway.handshake_timeout", "2d is too long, it must be at most 1h", ""},
	{"ranks lost too soon", slurmHead + profileP + "[gateway]\nrank_lost_after = \"30s\" #!\n", "gateway.rank_lost_after", "at least 1m", ""},
	{"negative bound", slurmHead + profileP + "[gateway]\npending_per_source = -1 #!\n", "gateway.pending_per_source", "-1 is out of range, it must be from 0 to 2000000", ""},
	{"no live workload", slurmHead + profileP + "[gateway]\nmax_live = 0 #!\n", "gateway.max_live", "it must be from 1 to 1000000", ""},
	{"group with a blank", slurmHead + profileP + "[gateway]\nadmins = [\"hpc adm\"] #!\n", "gateway.admins[0]", "is not a group's name", "Unix groups"},
	{"bound below the widest job", slurmHead + "[gateway]\npending_handshakes = 500 #!\n[profiles.small]\nmax_nodes = 2\n[profiles.gpu]\nmax_nodes = 64\nmax_ranks_per_node = 8\n",
		"gateway.pending_handshakes", `500 is below the 512 ranks of the widest allocation, of profile "gpu", which could then never start`, "512 or more, or to 0, which derives 640"},
	{"no profile", slurmHead, "profiles", "names no profile", "[profiles.default]"},
	{"profile name with a blank", slurmHead + "[profiles.\"gpu big\"] #!\nmax_nodes = 1\n", `profiles."gpu big"`, `"gpu big" is not a profile's name`, "letters"},
	{"no max_nodes", slurmHead + "[profiles.p] #!\nqos = \"x\"\n", "profiles.p.max_nodes", "is required", "max_nodes = 4"},
	{"max_nodes of 0", slurmHead + "[profiles.p]\nmax_nodes = 0 #!\n", "profiles.p.max_nodes", "0 is out of range, it must be from 1 to 1000000", ""},
	{"max_nodes as text", slurmHead + "[profiles.p]\nmax_nodes = \"4\" #!\n", "profiles.p.max_nodes", "must be a whole number, not text", ""},
	{"max_nodes beyond int64", slurmHead + "[profiles.p]\nmax_nodes = 99999999999999999999 #!\n", "", "out of range", ""},
	{"more than a million ranks", slurmHead + "[profiles.p]\nmax_nodes = 1000000\nmax_ranks_per_node = 1000000 #!\n", "profiles.p.max_ranks_per_node", "are more than 1000000 ranks", ""},
	{"cpus_per_rank of 0", slurmHead + profileP + "cpus_per_rank = 0 #!\n", "profiles.p.cpus_per_rank", "from 1 to", ""},
	{"CPUs over their ceiling", slurmHead + profileP + "cpus_per_rank = 8 #!\nmax_cpus_per_rank = 4\n", "profiles.p.cpus_per_rank", "8 is over max_cpus_per_rank, which is 4", ""},
	{"memory without a unit", slurmHead + profileP + "memory_per_node = \"64GB\" #!\n", "profiles.p.memory_per_node", `"64GB" is not a size`, `write "64GiB"`},
	{"memory over its ceiling", slurmHead + profileP + "memory_per_node = \"64GiB\" #!\nmax_memory_per_node = \"32GiB\"\n", "profiles.p.memory_per_node", "64GiB is over max_memory_per_node, which is 32GiB", ""},
	{"memory forbidden and bounded", slurmHead + profileP + "memory_per_node = \"\"\nmax_memory_per_node = \"32GiB\" #!\n", "profiles.p.max_memory_per_node", "already forbids", "leave one"},
	{"negative GPUs", slurmHead + profileP + "gpus_per_node = -1 #!\n", "profiles.p.gpus_per_node", "from 0 to 1024", ""},
	{"unknown GPU style", slurmHead + profileP + "gpu_style = \"gre\" #!\n", "profiles.p.gpu_style", `"gre" is no way to ask for GPUs`, `did you mean "gres"?`},
	{"walltime as the scheduler writes it", slurmHead + profileP + "walltime = \"4:00:00\" #!\n", "profiles.p.walltime", "is a scheduler's time", `write "4h"`},
	{"walltime over its ceiling", slurmHead + profileP + "max_walltime = \"2h\"\nwalltime = \"4h\" #!\n", "profiles.p.walltime", "4h is over max_walltime, which is 2h", "raise max_walltime"},
	{"walltime of seconds", slurmHead + profileP + "walltime = \"5s\" #!\n", "profiles.p.walltime", "at least 1m", ""},
	{"prologue of two lines", slurmHead + profileP + "prologue = [\"\"\"a\nb\"\"\"]\n", "profiles.p.prologue[0]", "holds a line end", "one shell line a string"},
	{"description of two lines", slurmHead + profileP + "description = \"a\\nb\" #!\n", "profiles.p.description", "holds a line end", "one line"},
	{"queue in a slurm site", slurmHead + profileP + "queue = \"q\" #!\n", "profiles.p.queue", "is a key of pbs sites, this one's scheduler is slurm", "here it is called partition"},
	{"place in a slurm site", slurmHead + profileP + "place = \"scatter\" #!\n", "profiles.p.place", "is a key of pbs sites", "leave it out"},
	{"partition in a pbs site", pbsHead + profileP + "partition = \"x\" #!\n", "profiles.p.partition", "is a key of slurm sites, this one's scheduler is pbs", "here it is called queue"},
	{"gpu_style in a pbs site", pbsHead + profileP + "gpu_style = \"gres\" #!\n", "profiles.p.gpu_style", "is a key of slurm sites", ""},
	{"partition in a local site", localHead + profileP + "partition = \"x\" #!\n", "profiles.p.partition", "is a key of slurm sites, this one's scheduler is local", "leave it out"},
	{"account in a local site", localHead + profileP + "account = \"x\" #!\n", "profiles.p.account", "charges no account", ""},
	{"directives in a local site", localHead + profileP + "directives = [\"-x\"] #!\n", "profiles.p.directives[0]", "have no directives", ""},
	{"partition that is an option", slurmHead + profileP + "partition = \"--wrap=x\" #!\n", "profiles.p.partition", "is not a name", "own name"},
	{"partition with a blank", slurmHead + profileP + "partition = \"a b\" #!\n", "profiles.p.partition", "is not a name", ""},
	{"account with a line end", slurmHead + profileP + "account = \"a\\nb\" #!\n", "profiles.p.account", `"a\x0ab" is not a name`, ""},
	{"unknown place", pbsHead + profileP + "place = \"scater\" #!\n", "profiles.p.place", `"scater" is no placement`, `did you mean "scatter"?`},
	{"place of two types", pbsHead + profileP + "place = \"scatter:pack\" #!\n", "profiles.p.place", "is no placement", ""},
	{"select with a second chunk", pbsHead + profileP + "select_extra = \"arch=x+1:ncpus=4\" #!\n", "profiles.p.select_extra", "is not a list of resources", "name=value"},
	{"select of what we set", pbsHead + profileP + "select_extra = \"arch=x:ncpus=4\" #!\n", "profiles.p.select_extra", "ncpus is set by openai4s itself", "cpus_per_rank"},
	{"select of GPUs twice", pbsHead + profileP + "gpus_per_node = 2\nselect_extra = \"ngpus=4\" #!\n", "profiles.p.select_extra", "already asked for by gpus_per_node", "leave one"},
	{"directive that sets the partition", slurmHead + profileP + "directives = [\"--constraint=x\",\n\"--partition=gpu\" #!\n]\n", "profiles.p.directives[1]", "--partition is set by openai4s itself", "the profile's key partition"},
	{"NUL in a value", slurmHead + profileP + "qos = \"a\\u0000\" #!\n", "profiles.p.qos", "holds a NUL character", ""},
	{"the same key twice", slurmHead + profileP + "max_nodes = 5 #!\n", "", "already", "once"},
}

func TestLoadRefuses(t *testing.T) {
	for _, tc := range badSites {
		t.Run(tc.name, func(t *testing.T) {
			path := write(t, tc.text)
			s, err := load(path, env(), "")
			require.Error(t, err)
			assert.Equal(t, Site{}, s, "a refused file gives nothing")
			e := asError(t, err)
			assert.Equal(t, path, e.File)
			if line := markedLine(tc.text); line > 0 {
				assert.Equal(t, line, e.Line, "line of %v", e)
			}
			assert.Equal(t, tc.key, string(e.Key))
			assert.Contains(t, e.Msg, tc.msg)
			assert.Contains(t, e.Hint, tc.hint)
			assert.NotContains(t, e.Error(), "\n")
		})
	}
}

func TestTheFirstProblemIsNamed(t *testing.T) {
	path := write(t, slurmHead+"[profiles.z]\nmax_nodes = 0\nqos = \"a b\"\n[profiles.a]\nmax_nodes = 0\n[gateway]\ntls = \"x\"\n")
	for range 20 {
		_, err := load(path, env(), "")
		assert.Equal(t, 4, asError(t, err).Line, "it doesn't depend on the order of maps")
	}
}

// FuzzLoad holds that no file makes Load panic, and that one it takes holds no NUL and no bound that the widest job
// can't pass.
func FuzzLoad(f *testing.F) {
	for _, tc := range badSites {
		f.Add([]byte(tc.text))
	}
	for _, name := range []string{"every-key.toml", "pbs.toml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		f.Add(data)
	}
	path := filepath.Join(f.TempDir(), "site.toml")
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		s, err := load(path, env(), "")
		if err != nil {
			asError(t, err)
			return
		}
		widest, _ := s.Widest()
		require.GreaterOrEqual(t, s.HandshakeBound(), widest)
		for _, set := range s.Explain() {
			require.NotContains(t, set.Value, "\x00")
		}
		s.Lint()
	})
}
