package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// badFile is a site file or a job file that must be refused before anything happens.
type badFileCase struct {
	name string
	text string
	line int      // 0: the message names no line
	key  string   // "" : the message names no key
	says []string // further words of the message
}

// goodSite and goodJob stand beside the bad file.
const (
	goodSite = "[site]\nname = \"t\"\nscheduler = \"local\"\n[profiles.default]\nmax_nodes = 4\nmax_ranks_per_node = 2\nmax_walltime = \"2h\"\nmemory_per_node = \"4GiB\"\nmax_memory_per_node = \"8GiB\"\n"
	goodJob  = "command = [\"true\"]\n"
)

var badJobs = []badFileCase{
	{"empty", "", 0, "command", []string{"is required"}},
	{"no command", "nodes = 1\n", 0, "command", []string{"is required"}},
	{"unknown key", "command = [\"true\"]\nnoodles = 4\n", 2, "noodles", nil},
	{"unknown table", "command = [\"true\"]\n[resource]\ncpus_per_rank = 1\n", 2, "resource", nil},
	{"unknown key in a table", "command = [\"true\"]\n[resources]\ncpu_per_rank = 1\n", 3, "resources.cpu_per_rank", nil},
	{"key in other case", "command = [\"true\"]\nNodes = 2\n", 2, "Nodes", nil},
	{"key twice", "command = [\"true\"]\nnodes = 1\nnodes = 2\n", 3, "", nil},
	{"nodes as text", "command = [\"true\"]\nnodes = \"4\"\n", 2, "nodes", nil},
	{"nodes as fraction", "command = [\"true\"]\nnodes = 1.5\n", 2, "nodes", nil},
	{"no nodes", "command = [\"true\"]\nnodes = 0\n", 2, "nodes", nil},
	{"negative nodes", "command = [\"true\"]\nnodes = -1\n", 2, "nodes", nil},
	{"nodes over max_nodes", "command = [\"true\"]\nnodes = 5\n", 2, "nodes", []string{"5", "4"}},
	{"nodes beyond an int", "command = [\"true\"]\nnodes = 99999999999999999999\n", 2, "", nil},
	{"ranks over the ceiling", "command = [\"true\"]\nranks_per_node = 3\n", 2, "ranks_per_node", []string{"3", "2"}},
	{"negative ranks", "command = [\"true\"]\nranks_per_node = -2\n", 2, "ranks_per_node", nil},
	{"unknown profile", "command = [\"true\"]\nprofile = \"gpu\"\n", 2, "profile", []string{"gpu"}},
	{"profile as a list", "command = [\"true\"]\nprofile = [\"default\"]\n", 2, "profile", nil},
	{"walltime over the ceiling", "command = [\"true\"]\nwalltime = \"3h\"\n", 2, "walltime", []string{"3h", "2h"}},
	{"walltime without unit", "command = [\"true\"]\nwalltime = 60\n", 2, "walltime", nil},
	{"walltime as a clock", "command = [\"true\"]\nwalltime = \"1:30:00\"\n", 2, "walltime", nil},
	{"negative walltime", "command = [\"true\"]\nwalltime = \"-1h\"\n", 2, "walltime", nil},
	{"no walltime at all", "command = [\"true\"]\nwalltime = \"0s\"\n", 2, "walltime", nil},
	{"command as text", "command = \"python3 train.py\"\n", 1, "command", nil},
	{"empty command", "command = []\n", 1, "command", nil},
	{"empty program", "command = [\"\"]\n", 1, "command[0]", nil},
	{"command of numbers", "command = [1, 2]\n", 1, "command[0]", nil},
	{"command in one word", "command = [\"python3 train.py\"]\n", 1, "command[0]", nil},
	{"NUL in the command", "command = [\"a\\u0000b\"]\n", 1, "command[0]", []string{"NUL"}},
	{"workdir of another user", "command = [\"true\"]\nworkdir = \"~root/x\"\n", 2, "workdir", nil},
	{"workdir with a variable", "command = [\"true\"]\nworkdir = \"$HOME/x\"\n", 2, "workdir", nil},
	{"negative restarts", "command = [\"true\"]\nrestarts = -1\n", 2, "restarts", nil},
	{"unknown kind", "command = [\"true\"]\nkind = \"service\"\n", 2, "kind", nil},
	{"output with an unknown sign", "command = [\"true\"]\noutput = \"x-%q.out\"\n", 2, "output", nil},
	{"name that is a path", "command = [\"true\"]\nname = \"../../etc/passwd\"\n", 2, "name", nil},
	{"name with a control character", "command = [\"true\"]\nname = \"a\\u001b[31mred\"\n", 2, "name", nil},
	{"memory over the ceiling", "command = [\"true\"]\n[resources]\nmemory_per_node = \"16GiB\"\n", 3, "resources.memory_per_node", nil},
	{"memory without unit", "command = [\"true\"]\n[resources]\nmemory_per_node = 16\n", 3, "resources.memory_per_node", nil},
	{"memory of decimal units", "command = [\"true\"]\n[resources]\nmemory_per_node = \"16 apples\"\n", 3, "resources.memory_per_node", nil},
	{"gpus where there are none", "command = [\"true\"]\n[resources]\ngpus_per_node = 1\n", 3, "resources.gpus_per_node", nil},
	{"secret-shaped variable", "command = [\"true\"]\n[env]\nHF_TOKEN = \"x\"\n", 3, "env.HF_TOKEN", []string{"secret"}},
	{"secret-shaped pair", "command = [\"true\"]\n[env]\nOPENAI_API_KEY = \"x\"\n", 3, "env.OPENAI_API_KEY", nil},
	{"password", "command = [\"true\"]\n[env]\nDB_PASSWORD = \"x\"\n", 3, "env.DB_PASSWORD", nil},
	{"loader variable", "command = [\"true\"]\n[env]\nLD_PRELOAD = \"/x.so\"\n", 3, "env.LD_PRELOAD", nil},
	{"shell start file", "command = [\"true\"]\n[env]\nBASH_ENV = \"/x\"\n", 3, "env.BASH_ENV", nil},
	{"python start file", "command = [\"true\"]\n[env]\nPYTHONSTARTUP = \"/x\"\n", 3, "env.PYTHONSTARTUP", nil},
	{"variable that is no name", "command = [\"true\"]\n[env]\n\"A B\" = \"x\"\n", 3, "", []string{"A B"}},
	{"variable as a number", "command = [\"true\"]\n[env]\nN = 1\n", 3, "env.N", nil},
	{"secret from nowhere", "command = [\"true\"]\n[secrets]\nT = {}\n", 3, "secrets.T", nil},
	{"secret from two places", "command = [\"true\"]\n[secrets]\nT = { env = \"T\", file = \"/t\" }\n", 3, "secrets.T", nil},
	{"secret as text", "command = [\"true\"]\n[secrets]\nT = \"hunter2\"\n", 3, "secrets.T", nil},
	{"secret of an unset variable", "command = [\"true\"]\n[secrets]\nT = { env = \"NOT_SET_ANYWHERE\" }\n", 0, "", []string{"secrets.T", "NOT_SET_ANYWHERE is not set"}},
	{"secret of a missing file", "command = [\"true\"]\n[secrets]\nT = { file = \"/nowhere/t\" }\n", 0, "", []string{"secrets.T", "/nowhere/t"}},
	{"secret of a folder", "command = [\"true\"]\n[secrets]\nT = { file = \"/tmp\" }\n", 0, "", []string{"secrets.T", "not a regular file"}},
	{"bad hash of an input", "command = [\"true\"]\n[[inputs]]\npath = \"job.toml\"\nsha256 = \"abc\"\n", 4, "inputs[0].sha256", nil},
	{"input without a path", "command = [\"true\"]\n[[inputs]]\nsha256 = \"abc\"\n", 2, "inputs[0].path", nil},
	{"input above the folder", "command = [\"true\"]\n[[inputs]]\npath = \"../x\"\n", 3, "inputs[0].path", nil},
	{"negative grace", "command = [\"true\"]\n[signal]\ngrace = \"-5s\"\n", 3, "signal.grace", nil},
	{"label with blanks", "command = [\"true\"]\n[labels]\n\"a b\" = \"x\"\n", 3, "", nil},
	{"broken TOML", "command = [\"true\"\nnodes = 1\n", 2, "", nil},
	{"unclosed text", "command = [\"true\"]\nname = \"x\n", 2, "", nil},
	{"NUL byte", "command = [\"true\"]\nname = \"a\x00b\"\n", 2, "", nil},
	{"not UTF-8", "command = [\"true\"]\nname = \"a\xffb\"\n", 2, "", nil},
	{"JSON", "{\"command\": [\"true\"]}\n", 1, "", nil},
	{"10 MB", "command = [\"true\"]\n# " + strings.Repeat("x", 10<<20) + "\n", 0, "", nil},
}

var badSites = []badFileCase{
	{"empty", "", 0, "site.scheduler", []string{"is required"}},
	{"unknown scheduler", "[site]\nscheduler = \"lsf\"\n[profiles.p]\nmax_nodes = 1\n", 2, "site.scheduler", []string{"lsf"}},
	{"unknown table", goodSite + "[gatway]\n", 10, "gatway", nil},
	{"unknown key", "[site]\nscheduler = \"local\"\nruntimedir = \"/x\"\n", 3, "site.runtimedir", nil},
	{"unknown key of a profile", goodSite + "max_node = 4\n", 10, "profiles.default.max_node", nil},
	{"wrong type", "[site]\nscheduler = [\"local\"]\n", 2, "site.scheduler", nil},
	{"no profiles", "[site]\nscheduler = \"slurm\"\n", 0, "profiles", nil},
	{"profile without max_nodes", "[site]\nscheduler = \"local\"\n[profiles.p]\n", 3, "profiles.p.max_nodes", nil},
	{"max_nodes of nothing", "[site]\nscheduler = \"local\"\n[profiles.p]\nmax_nodes = 0\n", 4, "profiles.p.max_nodes", nil},
	{"negative ranks", goodSite + "[profiles.q]\nmax_nodes = 1\nmax_ranks_per_node = -1\n", 12, "profiles.q.max_ranks_per_node", nil},
	{"bound below the widest", goodSite + "[profiles.wide]\nmax_nodes = 100\n[gateway]\npending_handshakes = 99\n", 13, "gateway.pending_handshakes", []string{"99", "100", "wide"}},
	{"negative bound", goodSite + "[gateway]\npending_handshakes = -1\n", 11, "gateway.pending_handshakes", nil},
	{"walltime over its own ceiling", goodSite + "walltime = \"3h\"\n", 10, "profiles.default.walltime", nil},
	{"unknown tls", goodSite + "[gateway]\ntls = \"maybe\"\n", 11, "gateway.tls", nil},
	{"listen without a port", goodSite + "[gateway]\nlisten = \"0.0.0.0\"\n", 11, "gateway.listen", nil},
	{"listen on a port beyond ports", goodSite + "[gateway]\nlisten = \"0.0.0.0:99999\"\n", 11, "gateway.listen", nil},
	{"advertise of every address", goodSite + "[gateway]\nadvertise = [\"0.0.0.0:8761\"]\n", 11, "gateway.advertise[0]", nil},
	{"control that is no absolute path", goodSite + "[gateway]\ncontrol = \"control.sock\"\n", 11, "gateway.control", nil},
	{"control too long for a socket", goodSite + "[gateway]\ncontrol = \"/" + strings.Repeat("x", 120) + "\"\n", 11, "gateway.control", []string{"107"}},
	{"time without unit", goodSite + "[gateway]\nhandshake_timeout = 30\n", 11, "gateway.handshake_timeout", nil},
	{"no time at all", goodSite + "[gateway]\nhandshake_timeout = \"0s\"\n", 11, "gateway.handshake_timeout", nil},
	{"relative command path", "[site]\nscheduler = \"slurm\"\ncommands = { sbatch = \"sbatch\" }\n[profiles.p]\nmax_nodes = 1\n", 3, "site.commands.sbatch", nil},
	{"command of another scheduler", "[site]\nscheduler = \"slurm\"\ncommands = { qsub = \"/usr/bin/qsub\" }\n[profiles.p]\nmax_nodes = 1\n", 3, "site.commands.qsub", nil},
	{"name that injects", "[site]\nname = \"a/../b\"\nscheduler = \"local\"\n[profiles.p]\nmax_nodes = 1\n", 2, "site.name", nil},
	{"prefix that injects", "[site]\nscheduler = \"local\"\njob_name_prefix = \"$(id)\"\n[profiles.p]\nmax_nodes = 1\n", 3, "site.job_name_prefix", nil},
	{"directive that we set ourselves", "[site]\nscheduler = \"slurm\"\n[profiles.p]\nmax_nodes = 1\ndirectives = [\"--nodes=5\"]\n", 5, "profiles.p.directives[0]", nil},
	{"directive that makes arrays", "[site]\nscheduler = \"slurm\"\n[profiles.p]\nmax_nodes = 1\ndirectives = [\"--array=1-5\"]\n", 5, "profiles.p.directives[0]", nil},
	{"directive that exports", "[site]\nscheduler = \"slurm\"\n[profiles.p]\nmax_nodes = 1\ndirectives = [\"--export=ALL\"]\n", 5, "profiles.p.directives[0]", nil},
	{"broken TOML", "[site\nscheduler = \"local\"\n", 2, "", nil},
	{"NUL byte", "[site]\nname = \"a\x00\"\n", 2, "", nil},
	{"10 MB", goodSite + "# " + strings.Repeat("x", 10<<20) + "\n", 0, "", nil},
}

// remedy is what a message has that tells what would be right: a hint, or the limit in the message itself.
var remedy = regexp.MustCompile(`(?m)^hint: .|must be|over the limit of|expected|out of range|cannot contain|input/output error|holds a|not a name`)

// TestBadFiles submits beside every bad file: the message has file, line, key and remedy, the exit code is 81, nothing
// is on standard output and nothing is left anywhere.
func TestBadFiles(t *testing.T) {
	require.GreaterOrEqual(t, len(badJobs)+len(badSites), 60)
	for _, c := range badJobs {
		t.Run("job/"+c.name, func(t *testing.T) { c.check(t, "job.toml", goodSite, c.text) })
	}
	for _, c := range badSites {
		t.Run("site/"+c.name, func(t *testing.T) { c.check(t, "site.toml", c.text, goodJob) })
	}
}

// TestUnreadableFiles is TestBadFiles for what isn't a matter of content.
func TestUnreadableFiles(t *testing.T) {
	cases := []struct {
		name string
		make func(t *testing.T, path string)
		says string
	}{
		{"missing", func(*testing.T, string) {}, "no such file"},
		{"a folder", func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o755)) }, "is a folder"},
		{"a broken link", func(t *testing.T, path string) { require.NoError(t, os.Symlink("nowhere", path)) }, "no such file"},
		{"a pipe", func(t *testing.T, path string) { require.NoError(t, exec.Command("mkfifo", path).Run()) }, "not a regular file"},
		{"a device", func(t *testing.T, path string) { require.NoError(t, os.Symlink("/dev/zero", path)) }, "not a regular file"},
		{"not readable", func(t *testing.T, path string) {
			if os.Getuid() == 0 {
				// root may read everything but this
				require.NoError(t, os.Symlink("/proc/self/mem", path))
				return
			}
			require.NoError(t, os.WriteFile(path, []byte(goodJob), 0))
		}, ""},
	}
	for _, file := range []string{"job.toml", "site.toml"} {
		for _, c := range cases {
			t.Run(file+"/"+c.name, func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dir, "site.toml"), []byte(goodSite), 0o644))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "job.toml"), []byte(goodJob), 0o644))
				require.NoError(t, os.Remove(filepath.Join(dir, file)))
				c.make(t, filepath.Join(dir, file))
				refused(t, dir, file, 0, "", []string{c.says})
			})
		}
	}
}

func (c badFileCase) check(t *testing.T, file, site, job string) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "site.toml"), []byte(site), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.toml"), []byte(job), 0o644))
	refused(t, dir, file, c.line, c.key, c.says)
}

// refused submits dir/job.toml on dir/site.toml and holds what must be said.
func refused(t *testing.T, dir, file string, line int, key string, says []string) {
	t.Helper()
	home := t.TempDir()
	before := tree(t, dir)
	where := filepath.Join(dir, file)
	if line > 0 {
		where += ":" + strconv.Itoa(line)
	}
	stdout, stderr, code := runIn(t, dir, home, "--site", filepath.Join(dir, "site.toml"), "submit", filepath.Join(dir, "job.toml"))
	require.Equal(t, exitBadFile, code, stderr)
	require.Empty(t, stdout)
	require.True(t, strings.HasPrefix(stderr, "openai4s: "+where+": "), stderr)
	if key != "" {
		require.Contains(t, stderr, key)
	}
	for _, word := range says {
		require.Contains(t, stderr, word)
	}
	require.NotContains(t, stderr, "hunter2")
	require.NotContains(t, stderr, "\x1b")
	require.Regexp(t, remedy, stderr, "a remedy is missing")
	require.Empty(t, tree(t, home), "something was left in the home folder")

	stdout, stderr, code = runIn(t, dir, home, "--site", filepath.Join(dir, "site.toml"), "--json", "submit", filepath.Join(dir, "job.toml"))
	require.Equal(t, exitBadFile, code, stdout)
	require.Empty(t, stderr)
	var answer struct {
		Error struct {
			Code     string
			Message  string
			Hint     string
			ExitCode int `json:"exit_code"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &answer), stdout)
	require.Equal(t, exitBadFile, answer.Error.ExitCode)
	require.Equal(t, "bad_file", answer.Error.Code)
	require.True(t, strings.HasPrefix(answer.Error.Message, where), answer.Error.Message)
	require.Empty(t, tree(t, home), "something was left in the home folder")
	require.Equal(t, before, tree(t, dir), "something was left beside the job file")
}

// runIn runs the CLI in a folder with a home of its own.
func runIn(t *testing.T, dir, home string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.Command(filepath.Join(programs, "openai4s"), args...)
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, environment(home), &out, &errs
	if err := c.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// tree lists what is below a folder.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			names = append(names, path)
		}
		return err
	}))
	return names
}
