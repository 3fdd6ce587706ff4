package sbatch

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

var update = flag.Bool("update", false, "write the golden scripts anew")

// plainRequest is the least that can be asked for.
func plainRequest(system string) scheduler.Request {
	return scheduler.Request{
		System:       system,
		Name:         "fold",
		Nodes:        1,
		RanksPerNode: 1,
		CPUsPerRank:  1,
		Walltime:     time.Hour,
		Workdir:      "/home/u/fold",
		Output:       "openai4s-%w.out",
		Signal:       scheduler.Signal{BeforeWalltime: time.Minute, Grace: 30 * time.Second},
	}
}

func plainLaunch() scheduler.Launch {
	return scheduler.Launch{
		Workload:   "wl_0123456789ab",
		Allocation: "alloc_ba9876543210",
		JobName:    "openai4s-fold-ba9876543210",
		Dir:        "/home/u/.openai4s/run/wl_0123456789ab",
		Agent:      "/opt/openai4s/1.4/bin/openai4s-agent",
		Launcher:   []string{"/opt/openai4s/1.4/bin/openai4s", "local-launch"},
	}
}

// variants are the requests that have a golden script.
var variants = map[string]func(*scheduler.Request, *scheduler.Launch){
	"plain": func(*scheduler.Request, *scheduler.Launch) {},
	"wide": func(r *scheduler.Request, _ *scheduler.Launch) {
		r.Nodes, r.RanksPerNode, r.CPUsPerRank, r.MemoryPerNode = 64, 8, 4, 64<<30
		r.Walltime = 49*time.Hour + 30*time.Second
		r.Placement.Partition, r.Placement.QoS, r.Placement.Account = "batch", "normal", "proj1"
	},
	"gres": func(r *scheduler.Request, _ *scheduler.Launch) { r.GPUsPerNode = 4 },
	"gres-typed": func(r *scheduler.Request, _ *scheduler.Launch) {
		r.GPUsPerNode, r.Placement.GPUStyle, r.Placement.GPUType = 4, "gres", "a100"
	},
	"gpus": func(r *scheduler.Request, _ *scheduler.Launch) {
		r.GPUsPerNode, r.Placement.GPUStyle = 2, "gpus"
	},
	"gpus-typed": func(r *scheduler.Request, _ *scheduler.Launch) {
		r.GPUsPerNode, r.Placement.GPUStyle, r.Placement.GPUType = 2, "gpus", "a100"
		r.Placement.Directives = []string{"--constraint=a100", "--hint=nomultithread"}
	},
	"restarts": func(r *scheduler.Request, l *scheduler.Launch) {
		r.Restarts, l.FirstEpoch = 2, 5
	},
	"no-warning":          func(r *scheduler.Request, _ *scheduler.Launch) { r.Signal.BeforeWalltime = 0 },
	"output-rank":         func(r *scheduler.Request, _ *scheduler.Launch) { r.Nodes, r.Output = 2, "/scratch/logs/%j/%w.%r.txt" },
	"output-rank-folders": func(r *scheduler.Request, _ *scheduler.Launch) { r.Nodes, r.Output = 2, "it's/%r/%j.txt" },
	"strange-paths": func(r *scheduler.Request, l *scheduler.Launch) {
		r.Workdir = `/home/u/it's $HOME "here" #1`
		r.Output = "100% of%%%j/%x-%w.out"
		l.Dir = "/home/u/my runs;rm -rf $(x)/50%/wl_0123456789ab"
		l.Agent = "/opt/open ai/`agent`"
		l.Launcher = []string{"/opt/open ai/openai4s", "local-launch"}
		l.JobName = "openai4s-hetjob-ba9876543210"
	},
}

func render(t *testing.T, system string, change func(*scheduler.Request, *scheduler.Launch)) scheduler.Submission {
	t.Helper()
	r, l := plainRequest(system), plainLaunch()
	change(&r, &l)
	sub, err := Render(r, l)
	require.NoError(t, err)
	return sub
}

func TestGoldenScripts(t *testing.T) {
	for _, system := range []string{"slurm", "local"} {
		for name, change := range variants {
			t.Run(system+"/"+name, func(t *testing.T) {
				sub := render(t, system, change)
				got := append([]byte("# arguments: "+words(sub.Args...)+"\n"), sub.Script...)
				golden := filepath.Join("testdata", system+"-"+name+".sh")
				if *update {
					require.NoError(t, os.WriteFile(golden, got, 0o644))
				}
				want, err := os.ReadFile(golden)
				require.NoError(t, err, "write it with -update")
				assert.Equal(t, string(want), string(got))

				sh := exec.Command("/bin/sh", "-n")
				sh.Stdin = bytes.NewReader(sub.Script)
				out, err := sh.CombinedOutput()
				require.NoError(t, err, "%s", out)

				again := render(t, system, change)
				require.Equal(t, sub, again, "rendering is pure")
			})
		}
	}
}

// TestCase22DirectivesComeFirst: what follows the first command is ignored by sbatch.
func TestCase22DirectivesComeFirst(t *testing.T) {
	for name, change := range variants {
		lines := strings.Split(string(render(t, "slurm", change).Script), "\n")
		require.Equal(t, "#!/bin/sh", lines[0])
		count := 0
		for strings.HasPrefix(lines[1+count], "#SBATCH ") {
			count++
		}
		require.Equal(t, strings.Count(string(render(t, "slurm", change).Script), "#SBATCH"), count, name)
		require.Greater(t, count, 8, name)
	}
}

// TestCase15CPUsAreSaidToSrun: since 22.05 srun takes them from the job no more.
func TestCase15CPUsAreSaidToSrun(t *testing.T) {
	for name, change := range variants {
		var request scheduler.Request
		sub := render(t, "slurm", func(r *scheduler.Request, l *scheduler.Launch) {
			change(r, l)
			request = *r
		})
		require.Positive(t, request.CPUsPerRank, name)
		want := fmt.Sprintf("--cpus-per-task=%d", request.CPUsPerRank)
		launches := 0
		for line := range strings.Lines(string(sub.Script)) {
			if strings.HasPrefix(line, "srun ") {
				launches++
				require.Contains(t, strings.Fields(line), want, name)
			}
		}
		require.Equal(t, 1, launches, name)
		require.Contains(t, string(sub.Script), "#SBATCH "+want+"\n", name)
	}
}

// TestDirectives checks what the cases of others hang on.
func TestDirectives(t *testing.T) {
	tests := map[string]struct {
		variant string
		has     []string
		hasNot  []string
	}{
		"case 14 and 15: srun's environment and processors": {
			"wide", []string{"#SBATCH --export=NONE\n", "unset SLURM_EXPORT_ENV ", " --export=ALL ", " --cpus-per-task=4 ", "#SBATCH --cpus-per-task=4\n"}, nil,
		},
		"ranks by blocks, all of them and at once ended": {
			"wide", []string{" --nodes=64 --ntasks=512 --ntasks-per-node=8 --distribution=block ", " --kill-on-bad-exit=1 ", " --wait=0 "}, nil,
		},
		"case 13: an outer job's binding":        {"wide", []string{" SLURM_CPU_BIND ", " SLURM_MEM_PER_CPU "}, nil},
		"case 19: a walltime beyond two days":    {"wide", []string{"#SBATCH --time=2-01:01:00\n"}, nil},
		"case 20: no memory asked":               {"plain", nil, []string{"--mem", "SLURM_MEM_PER_CPU", "--gres", "--gpus"}},
		"case 20: memory":                        {"wide", []string{"#SBATCH --mem=65536M\n"}, nil},
		"case 20: gres":                          {"gres", []string{"#SBATCH --gres=gpu:4\n"}, []string{"--gpus"}},
		"case 20: typed gres":                    {"gres-typed", []string{"#SBATCH --gres=gpu:a100:4\n"}, []string{"--gpus"}},
		"case 20: gpus":                          {"gpus", []string{"#SBATCH --gpus-per-node=2\n"}, []string{"--gres"}},
		"case 20: typed gpus, extras":            {"gpus-typed", []string{"#SBATCH --gpus-per-node=a100:2\n", "\n#SBATCH --constraint=a100\n#SBATCH --hint=nomultithread\n"}, []string{"--gres"}},
		"no restart wanted":                      {"plain", []string{"#SBATCH --no-requeue\n"}, []string{"SBATCH --requeue"}},
		"restarts wanted":                        {"restarts", []string{"#SBATCH --requeue\n"}, []string{"--no-requeue"}},
		"case 63: a warning":                     {"plain", []string{"#SBATCH --signal=28@60\n"}, nil},
		"no warning":                             {"no-warning", nil, []string{"--signal"}},
		"case 58: one file for all ranks":        {"plain", []string{"#SBATCH --output=/home/u/fold/openai4s-wl_0123456789ab.out\n"}, []string{"%t"}},
		"case 58: a file a rank":                 {"output-rank", []string{"\nmkdir -p -- /scratch/logs/\"$JOBID\" || fail 13 ", "--output=/scratch/logs/%j/wl_0123456789ab.%t.txt ", "#SBATCH --output=/home/u/.openai4s/run/wl_0123456789ab/batch-%j.out\n"}, nil},
		"a percent sign is not one of sbatch's":  {"strange-paths", []string{`/100%% of%%%j/%%x-wl_0123456789ab.out"`}, nil},
		"case 59: the agent by its own path":     {"plain", []string{"AGENT=/opt/openai4s/1.4/bin/openai4s-agent\n"}, nil},
		"a word that sbatch would blank out":     {"strange-paths", []string{"#SBATCH --job-name=openai4s-hetjo\\b-ba9876543210\n"}, []string{"hetjob"}},
		"the job's token is in the comment, too": {"plain", []string{"#SBATCH --comment=openai4s-fold-ba9876543210\n"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sub := render(t, "slurm", variants[test.variant])
			assert.Equal(t, []string{"--parsable"}, sub.Args)
			for _, s := range test.has {
				assert.True(t, strings.Contains(string(sub.Script), s), "missing: %q", s)
			}
			for _, s := range test.hasNot {
				assert.False(t, strings.Contains(string(sub.Script), s), "present: %q", s)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	tests := map[string]struct {
		system string
		change func(*scheduler.Request, *scheduler.Launch)
		words  string
	}{
		"line break in a directive": {"slurm", func(r *scheduler.Request, _ *scheduler.Launch) {
			r.Placement.Directives = []string{"--constraint=a\n#SBATCH --uid=0"}
		}, "line break"},
		"line break in a workdir": {"slurm", func(r *scheduler.Request, _ *scheduler.Launch) { r.Workdir = "/a\nb" }, "line break"},
		"NUL in RUN":              {"local", func(_ *scheduler.Request, l *scheduler.Launch) { l.Dir = "/a\x00b" }, "NUL"},
		"case 22: too many directives": {"slurm", func(r *scheduler.Request, _ *scheduler.Launch) {
			r.Placement.Directives = []string{"--comment=" + strings.Repeat("x", MaxScript)}
		}, "65536"},
		"backslash in slurm's output": {"slurm", func(r *scheduler.Request, _ *scheduler.Launch) { r.Output = `a\b` }, "backslash"},
		"warning that slurm can't give": {"slurm", func(r *scheduler.Request, _ *scheduler.Launch) {
			r.Signal.BeforeWalltime = 24 * time.Hour
		}, "before_walltime"},
		"no launcher here":   {"local", func(_ *scheduler.Request, l *scheduler.Launch) { l.Launcher = nil }, "launcher"},
		"relative RUN":       {"local", func(_ *scheduler.Request, l *scheduler.Launch) { l.Dir = "run" }, "absolute"},
		"relative agent":     {"local", func(_ *scheduler.Request, l *scheduler.Launch) { l.Agent = "agent" }, "absolute"},
		"relative workdir":   {"local", func(r *scheduler.Request, _ *scheduler.Launch) { r.Workdir = "" }, "absolute"},
		"no ranks":           {"local", func(r *scheduler.Request, _ *scheduler.Launch) { r.Nodes = 0 }, "0 nodes"},
		"another scheduler":  {"flux", func(*scheduler.Request, *scheduler.Launch) {}, "not supported"},
		"no scheduler named": {"", func(*scheduler.Request, *scheduler.Launch) {}, "not supported"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, l := plainRequest(test.system), plainLaunch()
			test.change(&r, &l)
			sub, err := Render(r, l)
			require.ErrorContains(t, err, test.words)
			require.Empty(t, sub.Script)
		})
	}
}
