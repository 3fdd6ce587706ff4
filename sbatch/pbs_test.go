package sbatch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/openai4s/hpc/scheduler"
)

// pbsVariants are what only PBS has, beside the variants that all schedulers render.
var pbsVariants = map[string]func(*scheduler.Request, *scheduler.Launch){
	"placed": func(r *scheduler.Request, _ *scheduler.Launch) {
		r.Nodes, r.RanksPerNode, r.CPUsPerRank, r.MemoryPerNode = 4, 2, 3, 1<<30+1
		r.Placement = scheduler.Placement{Queue: "gpuq", Project: "p 1", Account: "acc:ount/1", Place: "scatter:excl",
			SelectExtra: "ngpus=4:gpu_model=a100", Directives: []string{"-W group_list=lab", `-l  software="x y"`}}
		r.GPUsPerNode = 2
	},
	"output-job":          func(r *scheduler.Request, _ *scheduler.Launch) { r.Output = "logs/it's %w-%j.out" },
	"output-job-restarts": func(r *scheduler.Request, _ *scheduler.Launch) { r.Output, r.Restarts = "/scratch/%j/out", 1 },
}

func TestGoldenPBSScripts(t *testing.T) {
	all := map[string]func(*scheduler.Request, *scheduler.Launch){}
	for _, some := range []map[string]func(*scheduler.Request, *scheduler.Launch){variants, pbsVariants} {
		for name, change := range some {
			all[name] = change
		}
	}
	for name, change := range all {
		t.Run(name, func(t *testing.T) {
			sub := render(t, "pbs", change)
			got := append([]byte("# arguments: "+words(sub.Args...)+"\n"), sub.Script...)
			golden := filepath.Join("testdata", "pbs-"+name+".sh")
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
			require.Equal(t, sub, render(t, "pbs", change), "rendering is pure")
			require.NotContains(t, string(sub.Script), "\r", "qsub refuses carriage returns")
			require.NotContains(t, string(sub.Script), "\n#PBS", "all is said by arguments")
		})
	}
}

func value(args []string, option, prefix string) string {
	for i := range len(args) - 1 {
		if args[i] == option && strings.HasPrefix(args[i+1], prefix) {
			return args[i+1]
		}
	}
	return ""
}

func TestCase17And18PBSArguments(t *testing.T) {
	tests := map[string]struct {
		change func(*scheduler.Request, *scheduler.Launch)
		has    []string
		hasNot []string
	}{
		"case 17: ranks that want nodes are scattered": {variants["wide"], []string{"place=scatter", "select=64:ncpus=32:mpiprocs=8:ompthreads=4:mem=65536mb"}, nil},
		"a place of the profile's own":                 {pbsVariants["placed"], []string{"place=scatter:excl"}, []string{"place=scatter"}},
		"a select of the profile's own part wins":      {pbsVariants["placed"], []string{"select=4:ncpus=6:mpiprocs=2:ompthreads=3:mem=1025mb:ngpus=4:gpu_model=a100"}, nil},
		"GPUs":                            {variants["gres"], []string{"select=1:ncpus=1:mpiprocs=1:ompthreads=1:ngpus=4"}, nil},
		"no memory asked":                 {variants["plain"], []string{"select=1:ncpus=1:mpiprocs=1:ompthreads=1"}, nil},
		"case 19: two days are hours":     {variants["wide"], []string{"walltime=49:00:30"}, nil},
		"queue, account, project, extras": {pbsVariants["placed"], []string{"gpuq", "acc:ount/1", "p 1", "group_list=lab", "software=x y"}, nil},
		"not rerunnable":                  {variants["plain"], []string{"n"}, []string{"y"}},
		"rerunnable":                      {variants["restarts"], []string{"y"}, nil},
		"live, joined, readable output, and qsub leaves": {variants["plain"], []string{"-f", "oe", "-koed", "umask=022", "/home/u/fold/openai4s-wl_0123456789ab.out"}, []string{"-v", "-V"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			args := render(t, "pbs", test.change).Args
			for _, s := range test.has {
				assert.True(t, slices.Contains(args, s), "%q in %q", s, args)
			}
			for _, s := range test.hasNot {
				assert.False(t, slices.Contains(args, s), "%q in %q", s, args)
			}
			selects := 0
			for _, a := range args {
				if strings.HasPrefix(a, "select=") {
					selects++
				}
			}
			assert.Equal(t, 1, selects, "case 18: the first of two would win")
		})
	}
}

// Case 16: a name that qsub takes, and that qselect finds whole.
func TestCase16PBSJobName(t *testing.T) {
	args := render(t, "pbs", variants["plain"]).Args
	assert.Regexp(t, regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.+-]{0,229}$`), value(args, "-N", ""))
}

func TestCase19PBSTime(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "00:00:01", 65 * time.Minute: "01:05:00", 24 * time.Hour: "24:00:00", 1500 * time.Millisecond: "00:00:02", 1000 * time.Hour: "1000:00:00",
	} {
		assert.Equal(t, want, PBSTime(d))
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(2000*time.Hour)).Draw(t, "d"))
		parts := strings.Split(PBSTime(d), ":")
		require.Len(t, parts, 3)
		total := 0
		for i, p := range parts {
			n, err := strconv.Atoi(p)
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(p), 2)
			if i > 0 {
				require.Less(t, n, 60)
			}
			total = total*60 + n
		}
		back := time.Duration(total) * time.Second
		require.GreaterOrEqual(t, back, d)
		require.Less(t, back-d, time.Second)
	})
}

func TestPBSRefuses(t *testing.T) {
	for name, change := range map[string]func(*scheduler.Request, *scheduler.Launch){
		"a colon in the output":   func(r *scheduler.Request, _ *scheduler.Launch) { r.Output = "a:b.out" },
		"a line break in a place": func(r *scheduler.Request, _ *scheduler.Launch) { r.Placement.Place = "free\n" },
		"a line break in RUN":     func(_ *scheduler.Request, l *scheduler.Launch) { l.Dir = "/a\nb" },
	} {
		t.Run(name, func(t *testing.T) {
			r, l := plainRequest("pbs"), plainLaunch()
			change(&r, &l)
			_, err := Render(r, l)
			require.Error(t, err)
		})
	}
}

// TestPBSScriptRuns runs the script with a stand-in for the agent that prints what it is told.
func TestPBSScriptRuns(t *testing.T) {
	for name, c := range map[string]struct {
		output   string
		restarts int
		gone     bool // the name that -o had
	}{
		"output without the job's id": {output: "out"},
		"output with it":              {output: "logs/o-%j", gone: true},
		"output with it, restarts":    {output: "logs/o-%j", restarts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
				return path
			}
			r, l := plainRequest("pbs"), plainLaunch()
			r.Nodes, r.RanksPerNode, r.Workdir, r.Output, r.Restarts = 2, 3, dir, c.output, c.restarts
			l.Dir, l.Agent = filepath.Join(dir, "run"), write("agent", "#!/bin/sh\nfor a; do printf '<%s>' \"$a\"; done; echo; exit 7\n")
			write("run/gang-0.bundle", "")
			nodes, tmrsh := write("nodes", "n1\nn2\n"), write("bin/pbs_tmrsh", "#!/bin/sh\n")
			sub, err := Render(r, l)
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "logs"), 0o700))
			file := value(sub.Args, "-o", "/")
			out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			require.NoError(t, err)
			defer out.Close()
			sh := exec.Command("/bin/sh")
			sh.Stdin, sh.Stdout, sh.Stderr = bytes.NewReader(sub.Script), out, out
			sh.Env = []string{"PATH=" + filepath.Dir(tmrsh) + ":" + os.Getenv("PATH"), "PBS_JOBID=12.srv", "PBS_NODEFILE=" + nodes}
			err = sh.Run()
			text, readErr := os.ReadFile(OutputPath(r.Output, r.Workdir, l.Workload, "12.srv", 0))
			require.NoError(t, readErr)
			require.Error(t, err, "%s", text)
			assert.Equal(t, 7, sh.ProcessState.ExitCode(), "%s", text)
			run := l.Dir
			assert.Regexp(t, fmt.Sprintf(`^<launch><--nodes=2><--ranks-per-node=3><--grace=1m0s><--remote=%s><--node-file=%s><--exit-file=%s/exit-0><--><%s><--bundle><%s/gang-0.bundle><--epoch><0><--job><12.srv><--deadline><[0-9]{10}>\n$`,
				tmrsh, nodes, run, l.Agent, run), string(text))
			if c.gone {
				assert.NoFileExists(t, file)
			} else {
				assert.FileExists(t, file)
			}
		})
	}
}

func TestPBSScriptWithoutItsTools(t *testing.T) {
	dir := t.TempDir()
	r, l := plainRequest("pbs"), plainLaunch()
	r.Workdir, l.Dir, l.Agent = dir, dir, "/bin/true"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gang-0.bundle"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pbs.conf"), []byte("PBS_SERVER=x\nPBS_EXEC=/opt/elsewhere\n"), 0o600))
	sub, err := Render(r, l)
	require.NoError(t, err)
	sh := exec.Command("/bin/sh")
	sh.Stdin, sh.Env = bytes.NewReader(sub.Script), []string{"PATH=/usr/bin:/bin", "PBS_JOBID=12.srv", "PBS_CONF_FILE=" + dir + "/pbs.conf"}
	out, err := sh.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, ExitAgent, sh.ProcessState.ExitCode())
	assert.Contains(t, string(out), "pbs_tmrsh is neither in PATH")
}
