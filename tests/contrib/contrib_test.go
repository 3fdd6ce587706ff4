// Package contrib_test runs what contrib has for sites by stand-ins; tests/live runs what a real Slurm can load.
package contrib_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func contrib(t *testing.T, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"..", "..", "contrib"}, elements...)...))
	require.NoError(t, err)
	return path
}

func TestPBSHook(t *testing.T) {
	for name, c := range map[string]struct {
		variables map[string]any
		named     string // in the refusal; "": accepted
	}{
		"nothing":           {variables: nil},
		"PBS's own":         {variables: map[string]any{"PBS_O_HOME": "/home/a", "PBS_O_PATH": "/bin", "PBS_TOKEN_OF_ITS_OWN": "x"}},
		"harmless":          {variables: map[string]any{"OMP_NUM_THREADS": 4, "MODE": "train", "KEYBOARD": "de"}},
		"a token":           {map[string]any{"MODE": "train", "HF_TOKEN": "abc"}, "HF_TOKEN"},
		"small letters":     {map[string]any{"db_password": "abc"}, "db_password"},
		"an empty one":      {variables: map[string]any{"HF_TOKEN": ""}},
		"by its value":      {map[string]any{"X": "AKIAIOSFODNN7EXAMPLE"}, "X"},
		"a private key":     {map[string]any{"X": "-----BEGIN RSA PRIVATE KEY-----\nMII"}, "X"},
		"two":               {map[string]any{"B_SECRET": "b", "A_TOKEN": "a"}, "A_TOKEN, B_SECRET would"},
		"a number for one":  {map[string]any{"MY_API_KEY": 7}, "MY_API_KEY"},
		"a word with AKIA":  {variables: map[string]any{"X": "NAKIA"}},
		"a hash isn't one":  {variables: map[string]any{"COMMIT": "47c6fe4b1f0e9d3a2c5b8a7f6e5d4c3b2a190807"}},
		"openai4s's script": {variables: map[string]any{"PBS_O_WORKDIR": "/home/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(c.variables)
			require.NoError(t, err)
			cmd := exec.Command("python3", contrib(t, "pbs", "secrets_hook.py"))
			cmd.Env = append(os.Environ(), "PYTHONPATH=testdata", "PYTHONDONTWRITEBYTECODE=1")
			cmd.Stdin = bytes.NewReader(text)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			if c.named == "" {
				assert.Equal(t, "accepted\n", string(out))
				return
			}
			assert.True(t, strings.HasPrefix(string(out), "rejected: "+c.named), "%s", out)
			assert.Contains(t, string(out), "[secrets]")
			for _, v := range c.variables {
				if text, ok := v.(string); ok && len(text) > 1 {
					assert.NotContains(t, string(out), text, "the value isn't told")
				}
			}
		})
	}
}

func TestModulefile(t *testing.T) {
	out, err := exec.Command("tclsh", filepath.Join("testdata", "module.tcl"), contrib(t, "modulefiles", "openai4s")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, line := range []string{"prepend-path PATH /opt/openai4s/bin", "conflict openai4s", "openai4s submit --nodes 4 job.toml"} {
		assert.Contains(t, string(out), line)
	}
	text, err := os.ReadFile(contrib(t, "modulefiles", "openai4s"))
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(text, []byte("#%Module")), "by which it is known as one")
}

func TestShellFilesAreShell(t *testing.T) {
	for _, name := range []string{"prolog.sh", "epilog.sh"} {
		out, err := exec.Command("sh", "-n", contrib(t, "slurm", name)).CombinedOutput()
		assert.NoError(t, err, "%s", out)
		// A strange environment is no failure, as that drains a node, and no reason to touch anything.
		for _, env := range [][]string{nil, {"SLURM_JOB_ID=../x", "SLURM_JOB_UID=0"}, {"SLURM_JOB_ID=", "SLURM_JOB_UID="}} {
			cmd := exec.Command("sh", "-x", contrib(t, "slurm", name))
			cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
			assert.NotContains(t, string(out), "mkdir")
			assert.NotContains(t, string(out), "rm -rf")
		}
	}
}
