package step_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// localJob is a job of the local scheme: files in, files out.
func localJob(t *testing.T, inputs ...in) (j *job, out string) {
	t.Helper()
	j = newJob(t)
	out = filepath.Join(j.dir, "out", "attempts", "1", "gen-1")
	entries := []any{}
	for _, i := range inputs {
		path := filepath.Join(j.dir, "in", i.name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(i.data), 0o644))
		entry := doc{"port": "input", "relpath": i.name, "sha256": sha(i.data), "size": len(i.data), "local_path": path}
		override(entry, i.pin)
		entries = append(entries, entry)
	}
	manifest, err := json.Marshal(j.manifest)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(j.dir, "invocation.json"), manifest, 0o644))
	j.envelope = doc{"scheme": "local", "manifest_get": nil, "manifest_path": filepath.Join(j.dir, "invocation.json"),
		"inputs": entries, "staging": doc{"mode": "local_path", "path": out}}
	return j, out
}

func filesBelow(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, rel)
		}
		return err
	}))
	return names
}

func readDoc(t *testing.T, path string) (d doc) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &d))
	return d
}

func TestLocalSchemeWritesTheSameFiles(t *testing.T) {
	t.Parallel()
	j, out := localJob(t, in{name: "a.csv", data: "1\n"}, in{name: "d/b.csv", data: ""})
	require.Equal(t, 0, j.run(), j.output())
	require.Equal(t, []string{markerName, "outputs/a.csv", "outputs/d/b.csv", "result.json"}, filesBelow(t, out))
	m := readDoc(t, filepath.Join(out, markerName))
	require.Equal(t, "succeeded", m["status"])
	require.Len(t, m["objects"], 3)
	require.Empty(t, j.store.names, "nothing went over the network")
	marker, err := os.Stat(filepath.Join(out, markerName))
	require.NoError(t, err)
	result, err := os.Stat(filepath.Join(out, "result.json"))
	require.NoError(t, err)
	require.False(t, marker.ModTime().Before(result.ModTime()), "the marker is last")
}

func TestLocalNamesThatCannotStandSideBySide(t *testing.T) {
	t.Parallel()
	j, out := localJob(t,
		in{name: "1", data: "partial", pin: doc{"relpath": "x.partial"}}, in{name: "2", data: "x", pin: doc{"relpath": "x"}},
		in{name: "3", data: "a file", pin: doc{"relpath": "d"}}, in{name: "4", data: "in a folder of its name", pin: doc{"relpath": "d/e"}},
		in{name: "5", data: "f/g", pin: doc{"relpath": "f/g"}}, in{name: "6", data: "f", pin: doc{"relpath": "f"}})
	require.Equal(t, 0, j.run(), j.output())
	for name, data := range map[string]string{"x.partial": "partial", "x": "x", "d": "a file", "input/d/e": "in a folder of its name", "f/g": "f/g", "input/f": "f"} {
		got, err := os.ReadFile(filepath.Join(out, "outputs", name))
		require.NoError(t, err)
		require.Equal(t, data, string(got))
	}
}

func TestLocalInputThatIsMissingIsTransient(t *testing.T) {
	t.Parallel()
	j, out := localJob(t, in{name: "a", data: "1", pin: doc{"local_path": "/nowhere/at/all"}})
	require.Equal(t, 1, j.run())
	require.Equal(t, "failed", readDoc(t, filepath.Join(out, markerName))["status"])
	require.NotContains(t, j.output(), "/nowhere/at/all")
}

func TestLocalLinksDoNotLeadOutOfTheStagingFolder(t *testing.T) {
	t.Parallel()
	j, out := localJob(t, in{name: "a", data: "1"})
	elsewhere := t.TempDir()
	require.NoError(t, os.MkdirAll(out, 0o755))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(out, "outputs")))
	require.Equal(t, 1, j.run())
	require.Empty(t, filesBelow(t, elsewhere))
}

func TestLocalInputThatBlocksIsStoppedBeforeTheNext(t *testing.T) {
	t.Parallel()
	j, out := localJob(t, in{name: "a", data: strings.Repeat("x", 64<<20)}, in{name: "b", data: "2"})
	j.start()
	require.Eventually(t, func() bool {
		scratch, _ := filepath.Glob(filepath.Join(j.dir, "openai4s-step-*", "input"))
		return len(scratch) == 1
	}, 10*time.Second, time.Millisecond)
	j.signal(syscall.SIGTERM)
	require.Equal(t, 20, j.wait(promptly))
	require.Equal(t, "cancelled", readDoc(t, filepath.Join(out, markerName))["status"])
	require.NotContains(t, filesBelow(t, out), "outputs/b")
}
