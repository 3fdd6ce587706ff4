package step_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInputThatIsNotWhatWasPinned(t *testing.T) {
	t.Parallel()
	other := strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		input  in
		served string
		says   []string
	}{
		"other bytes":              {in{name: "swapped.csv", data: "pinned"}, "pinnEd", []string{"swapped.csv", "hashes to", "the job pinned", sha("pinned"), sha("pinnEd")}},
		"other bytes, no size":     {in{name: "swapped.csv", data: "pinned", pin: doc{"size": nil}}, "longer than it was", []string{"hashes to", "the job pinned"}},
		"too short":                {in{name: "short.csv", data: "abc", pin: doc{"size": 999}}, "abc", []string{"short.csv", "999"}},
		"too long":                 {in{name: "long.csv", data: "abc", pin: doc{"size": 2}}, "abc", []string{"long.csv", "2"}},
		"no pin":                   {in{name: "unpinned.csv", data: "a", pin: doc{"sha256": nil}}, "a", []string{"unpinned.csv", "sha256"}},
		"a pin in capitals":        {in{name: "caps.csv", data: "a", pin: doc{"sha256": strings.ToUpper(sha("a"))}}, "a", []string{"caps.csv", "lower-case"}},
		"a pin with a prefix":      {in{name: "p.csv", data: "a", pin: doc{"sha256": "sha256:" + sha("a")}}, "a", []string{"64"}},
		"a pin of nobody":          {in{name: "n.csv", data: "a", pin: doc{"sha256": other}}, "a", []string{other, "hashes to"}},
		"neither URL nor path":     {in{name: "lost.csv", data: "a", pin: doc{"get_url": nil}}, "a", []string{"lost.csv", "neither"}},
		"a URL of another kind":    {in{name: "ftp.csv", data: "a", url: "ftp://host/x?tok=secret"}, "a", []string{"ftp.csv", "not an http"}},
		"a name that climbs":       {in{name: "../up.csv", data: "a", url: "http://127.0.0.1:1/"}, "a", []string{"../up.csv"}},
		"a name with a backslash":  {in{name: `a\b`, data: "a", url: "http://127.0.0.1:1/"}, "a", []string{"backslash"}},
		"a name with two slashes":  {in{name: "a//b", data: "a", url: "http://127.0.0.1:1/"}, "a", []string{"a//b"}},
		"a port with a line break": {in{name: "p.csv", data: "a", port: "a\nb"}, "a", []string{"port", `"a\nb"`}},
		"a name with a line break": {in{name: "a\nb", data: "a", url: "http://127.0.0.1:1/"}, "a", []string{"control"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := in{name: "first.csv", data: "1\n"}
			j := newJob(t, first, c.input, in{name: "third.csv", data: "3\n"})
			j.store.objects[c.input.name] = content{data: []byte(c.served)}
			text := j.failed(10)
			for _, s := range c.says {
				require.Contains(t, text, s)
			}
			require.Contains(t, j.objects(), "outputs/first.csv", "what was made can be salvaged")
			require.NotContains(t, j.store.requests("input"), "third.csv")
			requireNoScratch(t, j)
		})
	}
}

// requireNoScratch looks for leftovers in the folder that temporary files go to.
func requireNoScratch(t *testing.T, j *job) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(j.dir, "openai4s-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestInputWithMoreBytesThanPinnedIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "endless.csv", data: "abc"})
	j.store.faults = []fault{on("input", 1, dribble("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcd", time.Second))}
	require.Contains(t, j.failed(10), "larger than the 3 bytes the job pinned")
	require.Less(t, j.elapsed, 5*time.Second)
}

func TestInputSizeCountsOnlyIfItIsAnInteger(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]any{"a string": "999", "a boolean": true, "a fraction": 999.5, "absent": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newJob(t, in{name: "a.csv", data: "abc", pin: doc{"size": size}}).succeeded()
		})
	}
}

func TestInputsName(t *testing.T) {
	t.Parallel()
	j := newJob(t,
		in{name: "a.csv", data: "a", pin: doc{"relpath": nil, "name": "named.csv"}},
		in{name: "b.csv", data: "b", pin: doc{"relpath": nil, "name": nil}},
		in{name: "c.csv", data: "c", pin: doc{"name": "other.csv"}})
	j.succeeded()
	require.Equal(t, []string{"outputs/named.csv", "outputs/input-1", "outputs/c.csv", "result.json"}, j.objects())
}

func TestInputsOfOneNameStayApart(t *testing.T) {
	t.Parallel()
	j := newJob(t,
		in{name: "d/data.tar.gz", port: "left", data: "1"},
		in{name: "l", port: "right", data: "2", pin: doc{"relpath": "d/data.tar.gz"}},
		in{name: "r", port: "right", data: "3", pin: doc{"relpath": "d/data.tar.gz"}},
		in{name: "s", port: "right", data: "4", pin: doc{"relpath": "d/data.tar.gz"}},
		in{name: "q", port: " a/b ", data: "5", pin: doc{"relpath": "d/data.tar.gz"}})
	j.succeeded()
	for name, data := range map[string]string{
		"outputs/d/data.tar.gz": "1", "outputs/right/d/data.tar.gz": "2", "outputs/right/d/data.tar-2.gz": "3",
		"outputs/right/d/data.tar-3.gz": "4", "outputs/a_b/d/data.tar.gz": "5",
	} {
		require.Equal(t, data, string(j.body(name)))
	}
}

func TestAwkwardNamesComeThroughUnchanged(t *testing.T) {
	t.Parallel()
	names := []string{"100%25-done.csv", "with space.csv", "ünïcode-日本.csv", "year=2026/month=08/rows.csv", `quo"ted';x.csv`, ".hidden", "x.partial", "x"}
	var inputs []in
	for i, name := range names {
		inputs = append(inputs, in{name: "in-" + string(rune('a'+i)), data: name, pin: doc{"relpath": name}})
	}
	j := newJob(t, inputs...)
	j.succeeded()
	for _, name := range names {
		require.Equal(t, name, string(j.body("outputs/"+name)))
	}
}

func TestNoInputsAtAll(t *testing.T) {
	t.Parallel()
	for name, envelope := range map[string]doc{"an empty list": nil, "no list": {"inputs": nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t)
			j.envelope = envelope
			j.succeeded()
			require.Equal(t, []string{"result.json", markerName}, j.store.acceptedNames())
		})
	}
}

func TestEmptyObject(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "empty.csv", data: ""})
	j.succeeded()
	require.Empty(t, j.body("outputs/empty.csv"))
}

func TestInputsGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"}, in{name: "c", data: "3"})
	var onDisk []string
	j.store.faults = []fault{func(_ *store, kind, _ string, _ int, _ http.ResponseWriter, _ *http.Request) bool {
		if kind == "upload" {
			files, _ := filepath.Glob(filepath.Join(j.dir, "openai4s-step-*", "*"))
			if len(files) > 1 {
				onDisk = files
			}
		}
		return false
	}}
	j.succeeded()
	require.Empty(t, onDisk, "one input on disk at a time")
	require.Equal(t, []string{"manifest invocation.json", "input a", "upload outputs/a", "input b", "upload outputs/b",
		"input c", "upload outputs/c", "upload result.json", "upload " + markerName}, j.store.names)
}

func TestLinesAreCountedAcrossBlocks(t *testing.T) {
	t.Parallel()
	data := string(bytes.Repeat([]byte("0123456789\n"), 250_000)) // 2.7 MB
	j := newJob(t, in{name: "a", data: data})
	j.succeeded()
	require.EqualValues(t, 250_000, j.document("result.json")["metrics"].(doc)["lines"])
}

func TestScratchThatCannotBeMadeIsTransient(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.env = []string{"TMPDIR=" + filepath.Join(j.dir, "nowhere")}
	require.Equal(t, 1, j.run())
	require.Contains(t, j.stderr.String(), "scratch folder")
}
