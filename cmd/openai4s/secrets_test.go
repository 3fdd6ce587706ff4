package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

func TestReadSecrets(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) scheduler.SecretSource {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return scheduler.SecretSource{File: path}
	}
	t.Setenv("SECRET_OF_TEST", "from env\n")
	t.Setenv("EMPTY_OF_TEST", "")
	cases := []struct {
		name   string
		source scheduler.SecretSource
		want   string
		says   string
	}{
		{"variable, as it is", scheduler.SecretSource{Env: "SECRET_OF_TEST"}, "from env\n", ""},
		{"empty variable", scheduler.SecretSource{Env: "EMPTY_OF_TEST"}, "", ""},
		{"unset variable", scheduler.SecretSource{Env: "NOT_SET_ANYWHERE"}, "", "secrets.KEY: the variable NOT_SET_ANYWHERE is not set"},
		{"file", file("a", "hunter2"), "hunter2", ""},
		{"one newline goes", file("b", "hunter2\n"), "hunter2", ""},
		{"only one", file("c", "hunter2\n\n"), "hunter2\n", ""},
		{"written elsewhere", file("d", "hunter2\r\n"), "hunter2", ""},
		{"missing file", scheduler.SecretSource{File: dir + "/none"}, "", "secrets.KEY"},
		{"folder", scheduler.SecretSource{File: dir}, "", "not a regular file"},
		{"NUL", file("e", "hunter2\x00"), "", "NUL"},
		{"too large", file("f", strings.Repeat("hunter2", maxSecret)), "", "more than"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := readSecrets(scheduler.Job{File: "/j/job.toml", Secrets: map[string]scheduler.SecretSource{"KEY": c.source}})
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error()+decide(err).hint, "hunter2")
				require.Equal(t, exitBadFile, decide(err).exit)
				return
			}
			require.NoError(t, err)
			require.Equal(t, map[string]string{"KEY": c.want}, got)
		})
	}
	none, err := readSecrets(scheduler.Job{})
	require.NoError(t, err)
	require.Empty(t, none)
}
