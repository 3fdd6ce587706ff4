package site

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

const twoProfiles = `[site]
scheduler = "slurm"
name = "lab"
job_name_prefix = "lab4s"
runtime_dir = "/shared/run"
[profiles.cpu]
partition = "cpu"
max_nodes = 128
max_ranks_per_node = 2
cpus_per_rank = 4
max_walltime = "2d"
memory_per_node = ""
[profiles.gpu]
partition = "gpu"
account = "proj1"
require_account = true
max_nodes = 4
max_ranks_per_node = 8
cpus_per_rank = 4
max_cpus_per_rank = 6
memory_per_node = "64GiB"
max_memory_per_node = "128GiB"
gpus_per_node = 4
walltime = "2h"
max_walltime = "8h"
prologue = ["module load cuda"]
idle_ttl = "1h"
max_lifetime = "7h"
[profiles.pauper]
max_nodes = 1
require_account = true
`

func testSite(t *testing.T) Site {
	t.Helper()
	s, err := load(write(t, twoProfiles), env(), "")
	require.NoError(t, err)
	return s
}

func testJob() scheduler.Job {
	return scheduler.Job{Name: "fold", Profile: "gpu", Workdir: "/home/ann/fold", Command: []string{"true"}, Kind: scheduler.Batch,
		Signal: scheduler.Signal{BeforeWalltime: time.Minute, Grace: 30 * time.Second}}
}

func gpus(n int) *int { return &n }

func TestResolveDefaults(t *testing.T) {
	s := testSite(t)
	r, err := s.Resolve(testJob())
	require.NoError(t, err)
	assert.Equal(t, scheduler.Request{
		System: "slurm", Profile: "gpu", Name: "fold", JobNamePrefix: "lab4s", Kind: scheduler.Batch, Nodes: 1, RanksPerNode: 1, Walltime: 2 * time.Hour,
		CPUsPerRank: 4, MemoryPerNode: 64 << 30, GPUsPerNode: 4,
		Placement: scheduler.Placement{Partition: "gpu", Account: "proj1", GPUStyle: "gres"}, Prologue: []string{"module load cuda"},
		Workdir: "/home/ann/fold", Output: "openai4s-%w.out", Signal: scheduler.Signal{BeforeWalltime: time.Minute, Grace: 30 * time.Second},
		GangTimeout: 10 * time.Minute, RuntimeDir: "/shared/run",
	}, r)
}

func TestResolveTakesWhatTheJobSays(t *testing.T) {
	j := testJob()
	j.Nodes, j.RanksPerNode, j.Walltime, j.Restarts, j.Output = 4, 8, 8*time.Hour, 100, "/scratch/%w.%r.%j.100%%"
	j.Resources = scheduler.Resources{CPUsPerRank: 6, MemoryPerNode: 128 << 30, GPUsPerNode: gpus(0)}
	j.GangTimeout = time.Minute
	r, err := testSite(t).Resolve(j)
	require.NoError(t, err)
	assert.Equal(t, 32, r.Size())
	assert.Equal(t, 8*time.Hour, r.Walltime)
	assert.Equal(t, 100, r.Restarts)
	assert.Equal(t, j.Output, r.Output)
	assert.Equal(t, 6, r.CPUsPerRank)
	assert.EqualValues(t, 128<<30, r.MemoryPerNode)
	assert.Zero(t, r.GPUsPerNode)
	assert.Equal(t, time.Minute, r.GangTimeout)
}

func TestResolveProfile(t *testing.T) {
	one := Builtin()
	r, err := one.Resolve(scheduler.Job{Name: "x", Workdir: "/"})
	require.NoError(t, err)
	assert.Equal(t, "default", r.Profile, "the only one")
	assert.Equal(t, 1, r.CPUsPerRank)
	assert.Equal(t, scheduler.Batch, r.Kind)
	several := testSite(t)
	several.Profiles["default"] = Profile{Name: "default", MaxNodes: 1}
	r, err = several.Resolve(scheduler.Job{Name: "x", Workdir: "/"})
	require.NoError(t, err)
	assert.Equal(t, "default", r.Profile, "the one of that name")
	assert.Equal(t, time.Hour, r.Walltime)
}

func TestResolveBuiltinTakesManyRanks(t *testing.T) {
	for _, size := range [][2]int{{64, 1}, {64, 4}, {1, 64}, {4, 64}, {64, 64}} {
		_, err := Builtin().Resolve(scheduler.Job{Name: "x", Workdir: "/", Nodes: size[0], RanksPerNode: size[1]})
		assert.NoError(t, err, "%v", size)
	}
}

func TestResolveRefuses(t *testing.T) {
	for _, tc := range []struct {
		name           string
		job            func(*scheduler.Job)
		key, msg, hint string
		siteKey        string // whose line the message names
	}{
		{"no profile said", func(j *scheduler.Job) { j.Profile = "" }, "profile", `is required: site "lab" has 3 profiles and none is named default`, "choose one of cpu, gpu, pauper", ""},
		{"misspelt profile", func(j *scheduler.Job) { j.Profile = "gup" }, "profile", `site "lab" has no profile "gup"`, `did you mean "gpu"? this site has: cpu, gpu, pauper`, ""},
		{"profile unlike any", func(j *scheduler.Job) { j.Profile = "nightly" }, "profile", "has no profile", "this site has: cpu, gpu, pauper", ""},
		{"too many nodes", func(j *scheduler.Job) { j.Nodes = 5 }, "nodes", "5 is over the limit of 4 (max_nodes of profile \"gpu\", ", "it would fit profile cpu", "profiles.gpu.max_nodes"},
		{"too many nodes for any", func(j *scheduler.Job) { j.Nodes = 500 }, "nodes", "500 is over the limit of 4", "ask for at most 4 nodes of 8 ranks", "profiles.gpu.max_nodes"},
		{"negative nodes", func(j *scheduler.Job) { j.Nodes = -1 }, "nodes", "-1 is out of range", "", ""},
		{"overflowing nodes", func(j *scheduler.Job) { j.Nodes = 1 << 62 }, "nodes", "it must be from 1 to 1000000", "", ""},
		{"too many ranks per node", func(j *scheduler.Job) { j.RanksPerNode = 9 }, "ranks_per_node", "9 is over the limit of 8", "at most 4 nodes of 8 ranks", "profiles.gpu.max_ranks_per_node"},
		{"overflowing ranks", func(j *scheduler.Job) { j.RanksPerNode = 1 << 62 }, "ranks_per_node", "is out of range", "", ""},
		{"too long", func(j *scheduler.Job) { j.Walltime = 9 * time.Hour }, "walltime", "9h is over the limit of 8h", "", "profiles.gpu.max_walltime"},
		{"negative walltime", func(j *scheduler.Job) { j.Walltime = -time.Hour }, "walltime", "is too short", "", ""},
		{"warning before the start", func(j *scheduler.Job) { j.Signal.BeforeWalltime = 2 * time.Hour }, "signal.before_walltime", "2h before the end leaves nothing of a walltime of 2h", "shorten", ""},
		{"CPUs over the ceiling", func(j *scheduler.Job) { j.Resources.CPUsPerRank = 7 }, "resources.cpus_per_rank", "7 is over the limit of 6", "", "profiles.gpu.max_cpus_per_rank"},
		{"CPUs over the node", func(j *scheduler.Job) { j.Profile, j.Resources.CPUsPerRank = "cpu", 9 }, "resources.cpus_per_rank", "9 for each of 1 ranks is over the 8 CPUs of a node", "fewer", "profiles.cpu.cpus_per_rank"},
		{"CPUs over the node's share", func(j *scheduler.Job) { j.Profile, j.Resources.CPUsPerRank, j.RanksPerNode = "cpu", 5, 2 }, "resources.cpus_per_rank", "5 for each of 2 ranks", "fewer", "profiles.cpu.cpus_per_rank"},
		{"negative CPUs", func(j *scheduler.Job) { j.Resources.CPUsPerRank = -1 }, "resources.cpus_per_rank", "out of range", "", ""},
		{"memory over the ceiling", func(j *scheduler.Job) { j.Resources.MemoryPerNode = 129 << 30 }, "resources.memory_per_node", "129GiB is over the limit of 128GiB", "", "profiles.gpu.max_memory_per_node"},
		{"memory where none may be asked for", func(j *scheduler.Job) { j.Profile, j.Resources.MemoryPerNode = "cpu", 1<<30 }, "resources.memory_per_node", "doesn't let jobs ask for memory", "leave it out", "profiles.cpu.memory_per_node"},
		{"negative memory", func(j *scheduler.Job) { j.Resources.MemoryPerNode = -1 }, "resources.memory_per_node", "out of range", "", ""},
		{"GPUs over the node's", func(j *scheduler.Job) { j.Resources.GPUsPerNode = gpus(5) }, "resources.gpus_per_node", "5 is over the limit of 4", "", "profiles.gpu.gpus_per_node"},
		{"GPUs where there are none", func(j *scheduler.Job) { j.Profile, j.Resources.GPUsPerNode = "cpu", gpus(1) }, "resources.gpus_per_node", `profile "cpu" has no GPUs`, "profiles with GPUs: gpu", ""},
		{"negative GPUs", func(j *scheduler.Job) { j.Resources.GPUsPerNode = gpus(-1) }, "resources.gpus_per_node", "out of range", "", ""},
		{"relative workdir", func(j *scheduler.Job) { j.Workdir = "x" }, "workdir", `"x" is not an absolute path`, "", ""},
		{"no workdir", func(j *scheduler.Job) { j.Workdir = "" }, "workdir", "is not an absolute path", "", ""},
		{"unknown token", func(j *scheduler.Job) { j.Output = "a-%x.out" }, "output", `"a-%x.out" holds %x, which is not known here`, "%w is the workload", ""},
		{"token of two bytes", func(j *scheduler.Job) { j.Output = "%ä" }, "output", "holds %ä", "", ""},
		{"padded token", func(j *scheduler.Job) { j.Output = "%4j" }, "output", "holds %4", "", ""},
		{"lone per cent sign", func(j *scheduler.Job) { j.Output = "a%" }, "output", "ends with a lone %", "%%", ""},
		{"per cent sign at the end", func(j *scheduler.Job) { j.Output = "a%%%" }, "output", "ends with a lone %", "", ""},
		{"folder as output", func(j *scheduler.Job) { j.Output = "logs/" }, "output", "is a folder", "", ""},
		{"line end in the output's name", func(j *scheduler.Job) { j.Output = "a\nb" }, "output", `"a\x0ab" holds a control character`, "", ""},
		{"endless output's name", func(j *scheduler.Job) { j.Output = strings.Repeat("x", 1025) }, "output", "is longer than 1024 bytes", "", ""},
		{"negative restarts", func(j *scheduler.Job) { j.Restarts = -1 }, "restarts", "from 0 to 100", "", ""},
		{"too many restarts", func(j *scheduler.Job) { j.Restarts = 101 }, "restarts", "101 is out of range", "", ""},
		{"negative gang timeout", func(j *scheduler.Job) { j.GangTimeout = -1 }, "gang.timeout", "is negative", "", ""},
		{"no name", func(j *scheduler.Job) { j.Name = "" }, "name", "is required", "", ""},
		{"a session", func(j *scheduler.Job) { j.Kind = scheduler.Session }, "kind", "runs no sessions", "leave it out", ""},
		{"a terminal", func(j *scheduler.Job) { j.TTY = true }, "tty", "only a session has a terminal", "leave it out", ""},
		{"files for the upstream worker", func(j *scheduler.Job) { j.UpstreamFiles = true }, "upstream_files", "writes no files", "leave it out", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := testSite(t)
			j := testJob()
			tc.job(&j)
			r, err := s.Resolve(j)
			require.Error(t, err)
			assert.Equal(t, scheduler.Request{}, r)
			e := asError(t, err)
			assert.Equal(t, tc.key, string(e.Key))
			assert.Contains(t, e.Msg, tc.msg)
			assert.Contains(t, e.Hint, tc.hint)
			assert.Empty(t, e.File, "no job file was read")
			if tc.siteKey != "" {
				want := setting(t, s, tc.siteKey).Source
				require.Contains(t, want, s.Path+":")
				assert.Contains(t, e.Msg, want+")")
			}
		})
	}
}

func TestCase21AccountIsRequired(t *testing.T) {
	s := testSite(t)
	j := testJob()
	j.Profile = "pauper"
	_, err := s.Resolve(j)
	e := asError(t, err)
	assert.Equal(t, s.Path, e.File)
	assert.Equal(t, 31, e.Line)
	assert.Equal(t, "profiles.pauper.account", string(e.Key))
	assert.Equal(t, `profile "pauper" requires an account and names none`, e.Msg)
}

func TestResolveBlamesTheLineOfTheJobFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.toml")
	require.NoError(t, os.WriteFile(path, []byte("command = [\"true\"]\nnodes = 5\nwalltime = \"540m\"\n[resources]\nmemory_per_node = \"129GiB\"\n"), 0o600))
	for _, tc := range []struct {
		name string
		job  func(*scheduler.Job)
		line int
	}{
		{"the file says it", func(j *scheduler.Job) { j.Nodes = 5 }, 2},
		{"a flag says it", func(j *scheduler.Job) { j.Nodes = 6 }, 0},
		{"a duration in another spelling", func(j *scheduler.Job) { j.Walltime = 9 * time.Hour }, 3},
		{"a size in a table", func(j *scheduler.Job) { j.Resources.MemoryPerNode = 129 << 30 }, 5},
	} {
		j := testJob()
		j.File = path
		tc.job(&j)
		_, err := testSite(t).Resolve(j)
		e := asError(t, err)
		assert.Equal(t, tc.line, e.Line, tc.name)
		if tc.line > 0 {
			assert.Equal(t, path, e.File, tc.name)
		} else {
			assert.Empty(t, e.File, tc.name)
		}
	}
}

func TestResolveOfASiteWithoutAFile(t *testing.T) {
	_, err := Builtin().Resolve(scheduler.Job{Name: "x", Workdir: "/", Nodes: 65})
	assert.Equal(t, `key "nodes": 65 is over the limit of 64 (max_nodes of profile "default")`, err.Error())
}
