package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// badJob is a file that must be refused: "#!" marks the line that the error names.
type badJob struct{ name, text, key, msg, hint string }

const ok = "command = [\"true\"]\n"

// injects is the message about a variable that makes programs run other code.
func injects(name string) badJob {
	return badJob{"injecting " + name, ok + "[env]\nA = \"x\"\n" + name + " = \"x\" #!\n", "env." + name, name + " makes programs run code that isn't theirs", "allow_env"}
}

func setByUs(name string) badJob {
	return badJob{"ours " + name, ok + "[env]\n" + name + " = \"x\" #!\n", "env." + name, "sets " + name + " itself", "leave it out"}
}

func secret(name, word string) badJob {
	return badJob{"secret " + name, ok + "[env]\n" + name + " = \"hunter2\" #!\n", "env." + name, "the name says " + word, "[secrets], like " + name + " ="}
}

var badJobs = []badJob{
	{"an empty file", "", "command", "is required", `["python3", "train.py"]`},
	{"no words", "command = [] #!\n", "command", "is required", "list"},
	{"command as text", "command = \"python3 train.py\" #!\n", "command", "must be a list, not text", `command = ["python3", "train.py"]`},
	{"command in one word", "command = [\"python3 train.py\"] #!\n", "command[0]", `"python3 train.py" is several words in one`, `["python3", "train.py"]`},
	{"empty program", "command = [\"\", \"x\"] #!\n", "command[0]", "may not be empty", "program"},
	{"NUL in a word", "command = [\"a\",\n\"b\\u0000\"] #!\n", "command[1]", "holds a NUL character", ""},
	{"number as a word", "command = [\"sleep\", 3] #!\n", "command[1]", "must be text, not a number", "quotes"},
	{"unknown key", ok + "node = 4 #!\n", "node", "unknown key", "did you mean nodes?"},
	{"the scheduler's word", ok + "partition = \"gpu\" #!\n", "partition", "unknown key", "known here"},
	{"key in capitals", ok + "Nodes = 4 #!\n", "Nodes", "unknown key", "did you mean nodes?"},
	{"unknown table", ok + "[resource] #!\n", "resource", "unknown key", "did you mean resources?"},
	{"unknown key of a table", ok + "[resources]\ncpu_per_rank = 4 #!\n", "resources.cpu_per_rank", "unknown key", "did you mean cpus_per_rank?"},
	{"empty name", ok + "name = \" \" #!\n", "name", "may not be empty", ""},
	{"name with a slash", ok + "name = \"a/b\" #!\n", "name", "is a path, not a name", ""},
	{"name of dots", ok + "name = \"..\" #!\n", "name", "is a path, not a name", ""},
	{"name with an escape", ok + "name = \"a\\u001bb\" #!\n", "name", `"a\x1bb" holds a character that can't be printed`, ""},
	{"name that turns the writing round", ok + "name = \"a\\u202eb\" #!\n", "name", "can't be printed", ""},
	{"name too long", ok + "name = \"" + strings.Repeat("ä", 65) + "\" #!\n", "name", "has 130 bytes, it may have 128", ""},
	{"no nodes", ok + "nodes = 0 #!\n", "nodes", "0 is out of range, it must be from 1 to 1000000", ""},
	{"negative nodes", ok + "nodes = -4 #!\n", "nodes", "-4 is out of range", ""},
	{"too many nodes", ok + "nodes = 1000001 #!\n", "nodes", "1000001 is out of range", ""},
	{"nodes beyond int64", ok + "nodes = 9223372036854775808 #!\n", "", "out of range", ""},
	{"half a node", ok + "nodes = 0.5 #!\n", "nodes", "must be a whole number, not the number 0.5", ""},
	{"nodes as text", ok + "nodes = \"4\" #!\n", "nodes", "must be a whole number, not text", ""},
	{"no ranks", ok + "ranks_per_node = 0 #!\n", "ranks_per_node", "0 is out of range", ""},
	{"more than a million ranks", ok + "nodes = 1000000\nranks_per_node = 1000000 #!\n", "ranks_per_node", "are more than 1000000 ranks", ""},
	{"walltime without a unit", ok + "walltime = 120 #!\n", "walltime", "must be a duration with a unit, not the number 120", `"120m" for minutes`},
	{"walltime as the scheduler writes it", ok + "walltime = \"1-00:00:00\" #!\n", "walltime", "is a scheduler's time", `write "1d"`},
	{"walltime as a time of day", ok + "walltime = 04:00:00 #!\n", "walltime", "not a time of day", `"4h"`},
	{"walltime of nothing", ok + "walltime = \"0s\" #!\n", "walltime", "0s is too short, it must be at least 1s", ""},
	{"negative walltime", ok + "walltime = \"-1h\" #!\n", "walltime", "is negative", ""},
	{"walltime of an age", ok + "walltime = \"20000d\" #!\n", "walltime", "20000d is too long", ""},
	{"unknown kind", ok + "kind = \"service\" #!\n", "kind", `"service" is no kind of job`, `"session"`},
	{"terminal of a batch job", ok + "tty = true #!\n", "tty", "only a session has a terminal", `kind = "session"`},
	{"too many restarts", ok + "restarts = 101 #!\n", "restarts", "it must be from 0 to 100", ""},
	{"negative restarts", ok + "restarts = -1 #!\n", "restarts", "it must be from 0 to 100", ""},
	{"empty output", ok + "output = \"\" #!\n", "output", "may not be empty", "openai4s-%w.out"},
	{"empty workdir", ok + "workdir = \"\" #!\n", "workdir", "may not be empty", ""},
	{"workdir of another user", ok + "workdir = \"~bob/x\" #!\n", "workdir", "names another user's home", "absolute"},
	{"workdir with a variable", ok + "workdir = \"$SCRATCH/x\" #!\n", "workdir", "begins with a variable", "not expanded"},
	{"workdir with a line end", ok + "workdir = \"a\\nb\" #!\n", "workdir", `"a\x0ab" holds a control character`, ""},
	{"setup with an escape", ok + "setup = [\"a\\u001b\"] #!\n", "setup[0]", "holds a control character", ""},
	{"setup as text", ok + "setup = \"source x\" #!\n", "setup", "must be a list, not text", `["source x"]`},
	{"label with a blank", ok + "[labels]\n\"a b\" = \"x\" #!\n", `labels."a b"`, "can't name a label", "letters"},
	{"label with a number", ok + "labels = { run = 4 } #!\n", "labels.run", "must be text, not a number", "quotes"},
	{"label with a line end", ok + "labels.a = \"x\\ny\" #!\n", "labels.a", "holds a control character", ""},
	{"label too long", ok + "labels.a = \"" + strings.Repeat("x", 257) + "\" #!\n", "labels.a", "has 257 bytes, it may have 256", ""},
	{"no CPUs", ok + "[resources]\ncpus_per_rank = 0 #!\n", "resources.cpus_per_rank", "0 is out of range", ""},
	{"memory in powers of ten", ok + "[resources]\nmemory_per_node = \"128GB\" #!\n", "resources.memory_per_node", `"128GB" is not a size`, `write "128GiB"`},
	{"memory without a unit", ok + "resources.memory_per_node = 128 #!\n", "resources.memory_per_node", "must be a size with a unit", `"128GiB"`},
	{"memory of nothing", ok + "resources.memory_per_node = \"0GiB\" #!\n", "resources.memory_per_node", "is too little, it must be at least 1MiB", "leave it out"},
	{"negative GPUs", ok + "[resources]\ngpus_per_node = -1 #!\n", "resources.gpus_per_node", "from 0 to 1024", ""},
	{"number in env", ok + "[env]\nOMP_NUM_THREADS = 4 #!\n", "env.OMP_NUM_THREADS", "must be text, not a number", "quotes"},
	{"NUL in env", ok + "[env]\nA = \"x\\u0000\" #!\n", "env.A", "holds a NUL character", ""},
	{"name with a dash in env", ok + "[env]\nA-B = \"x\" #!\n", "env.A-B", `"A-B" is not a variable's name`, "underscores"},
	{"name that begins with a digit", ok + "[env]\n1A = \"x\" #!\n", "env.1A", "is not a variable's name", ""},
	{"name with an equals sign", ok + "[env]\n\"A=B\" = \"x\" #!\n", `env."A=B"`, "is not a variable's name", ""},
	{"exported function", ok + "[env]\n\"BASH_FUNC_x%%\" = \"() { :; }\" #!\n", `env."BASH_FUNC_x%%"`, "is not a variable's name", ""},
	{"huge value", ok + "[env]\nA = \"" + strings.Repeat("x", 128<<10+1) + "\" #!\n", "env.A", "has 131073 bytes, a variable may have 131072", "file"},
	secret("HF_TOKEN", "TOKEN"), secret("MY_SECRET", "SECRET"), secret("DB_PASSWORD", "PASSWORD"), secret("X_PASSWD", "PASSWD"), secret("GCP_CREDENTIALS", "CREDENTIALS"),
	secret("PRIVATE_X", "PRIVATE"), secret("OAUTH", "OAUTH"), secret("BEARER_X", "BEARER"), secret("A_COOKIE_B", "COOKIE"), secret("OPENAI_API_KEY", "API_KEY"),
	secret("AWS_ACCESS_KEY_ID", "ACCESS_KEY"), secret("my_token", "TOKEN"),
	injects("LD_PRELOAD"), injects("LD_LIBRARY_PATH"), injects("DYLD_INSERT_LIBRARIES"), injects("BASH_ENV"), injects("ENV"), injects("PYTHONSTARTUP"),
	injects("PERL5OPT"), injects("RUBYOPT"), injects("NODE_OPTIONS"), injects("R_PROFILE"), injects("R_PROFILE_USER"), injects("R_ENVIRON_USER"),
	injects("GIT_SSH_COMMAND"), injects("GIT_CONFIG_COUNT"), injects("JAVA_TOOL_OPTIONS"), injects("PROMPT_COMMAND"),
	setByUs("OPENAI4S_RANK"), setByUs("RANK"), setByUs("WORLD_SIZE"), setByUs("LOCAL_RANK"), setByUs("MASTER_ADDR"), setByUs("MASTER_PORT"),
	setByUs("SLURM_JOB_ID"), setByUs("PBS_NODEFILE"), setByUs("PMI_RANK"),
	{"secret as text", ok + "[secrets]\nHF_TOKEN = \"hunter2\" #!\n", "secrets.HF_TOKEN", "must be a table, not text", ""},
	{"secret without a source", ok + "[secrets]\nHF_TOKEN = {} #!\n", "secrets.HF_TOKEN", "must have one of env and file", `{ env = "NAME" }`},
	{"secret of two sources", ok + "[secrets]\nHF_TOKEN = { env = \"A\", file = \"b\" } #!\n", "secrets.HF_TOKEN", "must have one of env and file", ""},
	{"secret of an unknown source", ok + "[secrets.HF_TOKEN]\nvalue = \"hunter2\" #!\n", "secrets.HF_TOKEN.value", "unknown key", "known here: env, file"},
	{"the secret in place of its name", ok + "secrets.HF_TOKEN.env = \"hunter2!\" #!\n", "secrets.HF_TOKEN.env", "is not a variable's name", "not its value"},
	{"empty secret file", ok + "secrets.HF_TOKEN.file = \"\" #!\n", "secrets.HF_TOKEN.file", "may not be empty", ""},
	{"secret that injects", ok + "secrets.LD_PRELOAD.env = \"A\" #!\n", "secrets.LD_PRELOAD", "makes programs run code", "allow_env"},
	{"secret in env as well", ok + "[env]\nCERT = \"x\"\n[secrets]\nCERT = { env = \"A\" } #!\n", "secrets.CERT", "stands in [env] as well", "leave one"},
	{"gang that never waits", ok + "[gang]\ntimeout = \"0s\" #!\n", "gang.timeout", "at least 1s", ""},
	{"grace without a unit", ok + "[signal]\ngrace = 30 #!\n", "signal.grace", "not the number 30", `"30s" for seconds`},
	{"unknown signal key", ok + "[signal]\nbefore_walltme = \"1m\" #!\n", "signal.before_walltme", "unknown key", "did you mean before_walltime?"},
	{"input without a path", ok + "[[inputs]] #!\n", "inputs[0].path", "is required", "relative to the job file"},
	{"input above the folder", ok + "[[inputs]]\npath = \"a\"\n[[inputs]]\npath = \"../x\" #!\n", "inputs[1].path", `"../x" holds ".."`, "absolute path"},
	{"input with an empty part", ok + "[[inputs]]\npath = \"a//b\" #!\n", "inputs[0].path", "holds an empty part", ""},
	{"input that is a folder", ok + "[[inputs]]\npath = \"a/\" #!\n", "inputs[0].path", "holds an empty part", ""},
	{"input with a backslash", ok + "[[inputs]]\npath = 'a\\b' #!\n", "inputs[0].path", "holds a backslash", ""},
	{"input with a line end", ok + "[[inputs]]\npath = \"a\\nb\" #!\n", "inputs[0].path", "holds a control character", ""},
	{"two inputs of one name", ok + "[[inputs]]\npath = \"x\"\n[[inputs]]\npath = \"/a/x\" #!\n", "inputs[1].path", `"x" is the name of inputs[0] too`, "once"},
	{"hash in capitals", ok + "[[inputs]]\npath = \"x\"\nsha256 = \"" + strings.Repeat("A", 64) + "\" #!\n", "inputs[0].sha256", "is not a SHA-256", "64 lower-case"},
	{"short hash", ok + "inputs = [{ path = \"x\", sha256 = \"ab\" }] #!\n", "inputs[0].sha256", `"ab" is not a SHA-256`, ""},
	{"empty hash", ok + "inputs = [{ path = \"x\", sha256 = \"\" }] #!\n", "inputs[0].sha256", "is not a SHA-256", "leave it out"},
	{"inputs as a table", ok + "[inputs] #!\npath = \"x\"\n", "inputs", "must be a list, not a table", ""},
	{"unknown input key", ok + "[[inputs]]\npath = \"x\"\nsha = \"y\" #!\n", "inputs[0].sha", "unknown key", ""},
	{"ports without a folder", ok + "[outputs.ports] #!\nout = [\"*.csv\"]\n", "outputs.ports", "no folder to publish them to", "outputs.publish"},
	{"port without files", ok + "outputs.publish = \"/x\"\n[outputs.ports]\nout = [] #!\n", "outputs.ports.out", "names no files", "patterns"},
	{"port of an absolute pattern", ok + "outputs.publish = \"/x\"\n[outputs.ports]\nout = [\"/etc/*\"] #!\n", "outputs.ports.out[0]", "is absolute", "below the workdir"},
	{"port above the workdir", ok + "outputs.publish = \"/x\"\n[outputs.ports]\nout = [\"a\", \"../*\"] #!\n", "outputs.ports.out[1]", `holds ".."`, ""},
	{"port of a broken pattern", ok + "outputs.publish = \"/x\"\n[outputs.ports]\nout = [\"a[\"] #!\n", "outputs.ports.out[0]", "is not a pattern", "bracket"},
	{"port with a blank name", ok + "outputs.publish = \"/x\"\n[outputs.ports]\n\" \" = [\"a\"] #!\n", `outputs.ports." "`, "is not a port's name", ""},
	{"publish to another user", ok + "outputs.publish = \"~bob\" #!\n", "outputs.publish", "names another user's home", ""},
	{"key twice", ok + "nodes = 1\nnodes = 2 #!\n", "", "already", "once"},
	{"byte order mark", "\xef\xbb\xbf" + ok, "", "begins with a byte order mark", "without"},
}

func TestLoadRefuses(t *testing.T) {
	for _, tc := range badJobs {
		t.Run(tc.name, func(t *testing.T) {
			path := write(t, tc.text)
			j, err := Load(path, nil)
			require.Error(t, err)
			assert.Equal(t, scheduler.Job{}, j, "a refused file gives nothing")
			e := asError(t, err)
			assert.Equal(t, path, e.File)
			for i, line := range strings.Split(tc.text, "\n") {
				if strings.HasSuffix(line, "#!") {
					assert.Equal(t, i+1, e.Line, "line of %v", e)
				}
			}
			assert.Equal(t, tc.key, string(e.Key))
			assert.Contains(t, e.Msg, tc.msg)
			assert.Contains(t, e.Hint, tc.hint)
			assert.NotContains(t, e.Error()+e.Hint, "hunter2", "a secret in the wrong place isn't shown")
			assert.NotContains(t, e.Error(), "\n")
		})
	}
}

func TestLoadBounds(t *testing.T) {
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for _, tc := range []struct{ name, text, key, msg string }{
		{"labels", ok + "[labels]\n" + many("k%d = \"\"\n", 65), "labels", "has 65 labels, it may have 64"},
		{"variables", ok + "[env]\n" + many("V%d = \"\"\n", 4097), "env", "has 4097 variables, it may have 4096"},
		{"words", "command = [" + many("\"w%d\",", 10001) + "]\n", "command", "has 10001 words, it may have 10000"},
		{"inputs", ok + "inputs = [" + many("{path=\"i%d\"},", 10001) + "]\n", "inputs", "has 10001 entries, it may have 10000"},
	} {
		_, err := Load(write(t, tc.text), nil)
		e := asError(t, err)
		assert.Equal(t, tc.key, string(e.Key), tc.name)
		assert.Equal(t, tc.msg, e.Msg)
	}
}

// FuzzLoad holds that no file makes Load panic, and that one it takes holds no NUL and only absolute paths.
func FuzzLoad(f *testing.F) {
	for _, tc := range badJobs {
		if len(tc.text) < 4096 {
			f.Add([]byte(tc.text))
		}
	}
	data, err := os.ReadFile("testdata/every-key.toml")
	require.NoError(f, err)
	f.Add(data)
	path := filepath.Join(f.TempDir(), "job.toml")
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		j, err := Load(path, nil)
		if err != nil {
			asError(t, err)
			return
		}
		require.NotContains(t, fmt.Sprintf("%q", fmt.Sprint(j)), `\x00`)
		require.True(t, filepath.IsAbs(j.Workdir))
		require.NotEmpty(t, j.Command)
		for _, in := range j.Inputs {
			require.True(t, filepath.IsAbs(in.Path))
			require.Empty(t, badRelpath(in.Name))
		}
		for name := range j.Env {
			require.Empty(t, secretShaped(name))
		}
	})
}
