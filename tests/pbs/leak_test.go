package pbs_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// places is text by the name of the place where it was found.
type places map[string]string

func (p places) with(needle string) []string {
	var found []string
	for name, text := range p {
		if strings.Contains(text, needle) {
			found = append(found, name)
		}
	}
	return found
}

// tree reads all files below a folder.
func tree(t *testing.T, dir string) places {
	t.Helper()
	p := places{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // gone, or no file
		}
		text, err := os.ReadFile(path)
		if err == nil && len(text) < 4<<20 { // not the programs
			p[path] = string(text)
		}
		return nil
	}))
	return p
}

// processes are the arguments of every process of this machine, and the environment of those named.
func processes(p places, environs func(args string) bool) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		args, err := os.ReadFile(dir + "/cmdline")
		if err != nil || strconv.Itoa(os.Getpid()) == filepath.Base(dir) {
			continue
		}
		line := string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
		p[dir+" arguments"] += line
		if environs(line) {
			env, _ := os.ReadFile(dir + "/environ")
			p[dir+" environment of "+line] += string(env)
		}
	}
}

// Cases 61 and 62: no secret, signature or nonce is where another user, the scheduler or a log could show it.
func TestCase61And62NothingSecretIsShown(t *testing.T) {
	const secret = "hunter2-swordfish-0451"
	w := newWorld(t, newCluster(t), "")
	w.env = append(w.env, "HF_TOKEN="+secret)
	job := w.write("job.toml", `
name = "leak"
nodes = 2
walltime = "5m"
command = ["sh", "-c", 'echo up $RANK ${#HF_TOKEN}; printf "%s" "$HF_TOKEN" >seen-$RANK; until test -e go; do sleep 0.1; done']
[secrets]
HF_TOKEN = { env = "HF_TOKEN" }
`)
	s := w.start("openai4s", "submit", "--embedded", "--wait", job)
	id := s.id()
	var st = w.status(id).Workload
	w.until("the ranks don't run", func() bool {
		st = w.status(id).Workload
		text, _ := os.ReadFile(st.Output)
		return strings.Count(string(text), fmt.Sprintf(" %d\n", len(secret))) == 2
	})

	// What is looked for, taken from where it belongs.
	run := filepath.Join(w.dir, "run", id)
	bundle := w.read(filepath.Join(run, "gang-0.bundle"))
	lines := regexp.MustCompile(`\{"allocation_id"[^\x00]*|[0-9a-f]{64}|[A-Za-z0-9_=-]{43,}`).FindAllString(bundle[4096:], -1)
	needles := map[string]string{"the job's secret": secret}
	for i, l := range lines {
		for _, word := range regexp.MustCompile(`[A-Za-z0-9_-]{32,}`).FindAllString(l, -1) {
			needles[fmt.Sprintf("credential %d, %s…", i, word[:4])] = word
		}
	}
	require.Greater(t, len(needles), 2, "signatures and nonces were found in the bundle")

	// The search finds what is where it belongs.
	known := tree(t, run)
	known["seen by the command"] = w.read(filepath.Join(w.dir, "seen-0"))
	for what, needle := range needles {
		require.NotEmpty(t, known.with(needle), "the search finds %s", what)
	}

	// And nowhere else.
	shown := places{
		"qstat -f":      w.run("qstat", "-f", st.Job.ID).stdout,
		"qstat -F json": w.run("qstat", "-f", "-F", "json", st.Job.ID).stdout,
		"submit":        s.said(),
		"status":        w.run("openai4s", "status", "--embedded", "--json", id).stdout,
		"output":        w.read(st.Output),
		"render":        w.run("openai4s", "render", job).stdout,
	}
	for path, text := range tree(t, run) {
		if !strings.HasSuffix(path, ".bundle") {
			shown[path] = text
		}
	}
	for path, text := range tree(t, w.state) {
		if strings.HasSuffix(path, ".log") {
			shown[path] = text
		}
	}
	processes(shown, func(args string) bool { // the command itself is given its secret
		return strings.Contains(args, "openai4s-agent") || strings.Contains(args, ".SC")
	})
	for what, text := range serverFiles(w) {
		shown[what] = text
	}
	toOthers(w, shown, st.Job.ID)
	require.NotEmpty(t, shown.with("--rank"), "the agents' arguments are among what is searched")
	require.NotEmpty(t, shown.with("OPENAI4S_BUNDLE"), "the script's text is among what is searched")
	for what, needle := range needles {
		assert.Empty(t, shown.with(needle), what)
	}

	w.write("go", "")
	assert.Zero(t, s.wait().code, s.said())
	record := w.gone(st.Job.ID)
	for what, needle := range needles {
		assert.NotContains(t, record, needle, what)
	}
}
