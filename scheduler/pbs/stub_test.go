package pbs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func itoa(n int) string { return strconv.Itoa(n) }

const goodVersion = `if [ "$1" = --version ]; then echo "pbs_version = 23.06.06"; exit 0; fi`

// stub returns a System whose commands are the given shell texts; qstat answers --version unless it says otherwise.
// Each call appends its name and arguments to the returned log.
func stub(t *testing.T, commands map[string]string) (*System, func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	paths := map[string]string{}
	if _, own := commands["qstat"]; !own {
		commands["qstat"] = "exit 1"
	}
	for name, text := range commands {
		path := filepath.Join(dir, name)
		if name == "qstat" && !strings.Contains(text, "--version") {
			text = goodVersion + "\n" + text
		}
		body := "#!/bin/sh\nprintf '%s\\n' \"" + name + " $*\" >>" + log + "\n" + text + "\n"
		require.NoError(t, os.WriteFile(path, []byte(body), 0o700))
		paths[name] = path
	}
	return New(paths), func() string {
		b, _ := os.ReadFile(log)
		return string(b)
	}
}

// answer is shell text that repeats a recorded answer: its output, its errors and its exit code.
func answer(t *testing.T, name string) string {
	t.Helper()
	base, err := filepath.Abs(filepath.Join("testdata", "answers", name))
	require.NoError(t, err)
	return fmt.Sprintf("cat %s.out 2>/dev/null\ncat %s.err >&2 2>/dev/null\nexit %d", base, base, recordedCode(t, base))
}

// recordedCode is the exit code in the second line of a record's .cmd file.
func recordedCode(t *testing.T, base string) int {
	t.Helper()
	cmd, err := os.ReadFile(base + ".cmd")
	require.NoError(t, err)
	lines := strings.Split(string(cmd), "\n")
	code, err := strconv.Atoi(strings.TrimPrefix(strings.Fields(lines[1])[0], "rc="))
	require.NoError(t, err)
	return code
}
