package job

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

// write puts text into a job file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.toml")
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
	dir, err := filepath.Abs("testdata")
	require.NoError(t, err)
	j, err := Load("testdata/every-key.toml", nil)
	require.NoError(t, err)
	none := 0
	assert.Equal(t, scheduler.Job{
		File: dir + "/every-key.toml", Name: "fold it", Profile: "gpu-batch", Nodes: 4, RanksPerNode: 2, Walltime: 2 * time.Hour,
		Command: []string{"python3", "train.py", "--epochs", "3"}, Setup: []string{"source venv/bin/activate", "export A=1\nexport B=2"},
		Workdir: dir + "/work", Restarts: 3, Kind: scheduler.Session, TTY: true, UpstreamFiles: true, Output: "logs/%w-%r.out",
		Labels:    map[string]string{"project": "x", "team/name": "ä b"},
		Resources: scheduler.Resources{CPUsPerRank: 8, MemoryPerNode: 128 << 30, GPUsPerNode: &none},
		Env:       map[string]string{"OMP_NUM_THREADS": "4", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": "lib", "EMPTY": ""},
		Secrets: map[string]scheduler.SecretSource{"HF_TOKEN": {Env: "MY_TOKEN"}, "DB_PASSWORD": {File: "/home/ann/.db"},
			"LOCAL_CERT": {File: dir + "/cert.pem"}},
		GangTimeout: 15 * time.Minute, Signal: scheduler.Signal{BeforeWalltime: 2 * time.Minute, Grace: 45 * time.Second},
		Inputs: []scheduler.Input{
			{Path: dir + "/data/rows.csv", Name: "data/rows.csv", SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
			{Path: "/shared/ref/genome.fa", Name: "genome.fa"},
		},
		Outputs: scheduler.Outputs{Publish: dir + "/results", Ports: map[string][]string{"output": {"results/*.csv", "log[0-9].txt"}, "model files": {"*.pt"}}},
	}, j)
}

func TestLoadDefaults(t *testing.T) {
	path := write(t, "command = [\"true\"]\n")
	j, err := Load(path, nil)
	require.NoError(t, err)
	assert.Equal(t, scheduler.Job{
		File: path, Name: "job", Command: []string{"true"}, Workdir: filepath.Dir(path), Kind: scheduler.Batch, Output: "openai4s-%w.out",
		GangTimeout: 10 * time.Minute, Signal: scheduler.Signal{BeforeWalltime: time.Minute, Grace: 30 * time.Second},
	}, j, "what is left to the site stays zero")
}

func TestLoadNameIsTheStem(t *testing.T) {
	dir := t.TempDir()
	for file, want := range map[string]string{"fold.toml": "fold", "fold.v2.toml": "fold.v2", "fold": "fold", "größe.toml": "größe"} {
		path := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, []byte("command = [\"true\"]\n"), 0o600))
		j, err := Load(path, nil)
		require.NoError(t, err)
		assert.Equal(t, want, j.Name)
	}
	path := filepath.Join(dir, "a\nb.toml")
	require.NoError(t, os.WriteFile(path, []byte("command = [\"true\"]\n"), 0o600))
	_, err := Load(path, nil)
	e := asError(t, err)
	assert.Equal(t, "name", string(e.Key))
	assert.Equal(t, "set name", e.Hint)
	assert.NotContains(t, e.Error(), "\n")
}

func TestLoadAllowEnv(t *testing.T) {
	path := write(t, "command = [\"true\"]\n[env]\nLD_LIBRARY_PATH = \"/opt/lib\"\n")
	_, err := Load(path, nil)
	assert.Contains(t, asError(t, err).Hint, `allow_env = ["LD_LIBRARY_PATH"] in [site] of site.toml`)
	j, err := Load(path, []string{"LD_LIBRARY_PATH"})
	require.NoError(t, err)
	assert.Equal(t, "/opt/lib", j.Env["LD_LIBRARY_PATH"])
	_, err = Load(path, []string{"LD_PRELOAD"})
	assert.Error(t, err, "each is allowed by its own name")
	path = write(t, "command = [\"true\"]\n[env]\nHF_TOKEN = \"x\"\n")
	_, err = Load(path, []string{"HF_TOKEN"})
	assert.Error(t, err, "a secret's place is never [env]")
	path = write(t, "command = [\"true\"]\n[env]\nRANK = \"0\"\n")
	_, err = Load(path, []string{"RANK"})
	assert.Error(t, err, "what every rank gets can't be allowed")
}

func TestNew(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	require.NoError(t, err)
	j, err := New([]string{"/usr/bin/python3", "train.py"})
	require.NoError(t, err)
	assert.Equal(t, scheduler.Job{
		Name: "python3", Command: []string{"/usr/bin/python3", "train.py"}, Workdir: dir, Kind: scheduler.Batch, Output: "openai4s-%w.out",
		GangTimeout: 10 * time.Minute, Signal: scheduler.Signal{BeforeWalltime: time.Minute, Grace: 30 * time.Second},
	}, j)
	for program, want := range map[string]string{"/": "job", "..": "job", "a\nb": "ab", "\xff": "job", strings.Repeat("ä", 100): strings.Repeat("ä", 64)} {
		j, err := New([]string{program})
		require.NoError(t, err, "%q", program)
		assert.Equal(t, want, j.Name)
	}
	_, err = New(nil)
	assert.Equal(t, "command", string(asError(t, err).Key))
	_, err = New([]string{"a\x00b"})
	assert.ErrorContains(t, err, "NUL")
}

func TestSecretShaped(t *testing.T) {
	for name, want := range map[string]string{
		"SECRET": "SECRET", "HF_TOKEN": "TOKEN", "TOKEN_FILE": "TOKEN", "DB_PASSWORD": "PASSWORD", "PGPASSWD": "", "X_PASSWD": "PASSWD", "CREDENTIAL": "CREDENTIAL",
		"CREDENTIALS": "CREDENTIALS", "PRIVATE_KEY": "PRIVATE", "OAUTH_X": "OAUTH", "BEARER": "BEARER", "MY_COOKIE": "COOKIE", "OPENAI_API_KEY": "API_KEY",
		"AWS_ACCESS_KEY_ID": "ACCESS_KEY", "hf_token": "TOKEN", "API_URL_KEY": "", "KEY": "", "API": "", "TOKENIZERS_PARALLELISM": "", "SECRETARY": "",
		"MONKEY": "", "OMP_NUM_THREADS": "", "ACCESS": "", "KEY_ACCESS": "",
	} {
		assert.Equal(t, want, secretShaped(name), name)
	}
}

func TestDurationsAndSizesOfFlags(t *testing.T) {
	d, err := ParseDuration("1d12h")
	require.NoError(t, err)
	assert.Equal(t, "1d12h", FormatDuration(d))
	_, err = ParseDuration("4:00:00")
	assert.Equal(t, `write "4h"`, asError(t, err).Hint)
	n, err := ParseSize("64GiB")
	require.NoError(t, err)
	assert.Equal(t, "64GiB", FormatSize(n))
	_, err = ParseSize("64GB")
	assert.Equal(t, `write "64GiB"`, asError(t, err).Hint)
}
