package pbs_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The same job.toml says the same on the local scheduler and on PBS, but for the scheduler's handle.
func TestSameWordsAsTheLocalScheduler(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	job := helloIn(w)
	local := w.write("local.toml", "[site]\nname = \"l\"\nscheduler = \"local\"\nruntime_dir = \""+filepath.Join(w.dir, "lrun")+"\"\n\n[profiles.default]\nmax_nodes = 4\nwalltime = \"10m\"\n")
	var documents [2]map[string]any
	for i, site := range []string{w.site, local} {
		e := w.run("openai4s", "submit", "--embedded", "--site", site, "--wait", "--nodes", "4", job)
		require.Zero(t, e.code, e.stderr)
		e = w.run("openai4s", "status", "--embedded", "--site", site, "--json", workloadID.FindString(e.stderr))
		require.Zero(t, e.code, e.stderr)
		text := regexp.MustCompile(`wl_[0-9a-f]{12}`).ReplaceAllString(e.stdout, "wl")
		text = regexp.MustCompile(`alloc_[0-9a-f]{12}`).ReplaceAllString(text, "alloc")
		text = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`).ReplaceAllString(text, "TIME")
		require.NoError(t, json.Unmarshal([]byte(text), &documents[i]))
		strip(documents[i])
	}
	assert.Equal(t, documents[1], documents[0])
}

// strip takes the handle out of a document: the scheduler's job, its name there, its hosts, its own word for its state;
// RUN, which two sites have in two places; and how many changes were seen, which depends on when it was looked.
func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"job", "job_name", "hosts", "host", "scheduler_state", "run", "version"} {
			delete(v, name)
		}
		for _, inner := range v {
			strip(inner)
		}
	case []any:
		for _, inner := range v {
			strip(inner)
		}
	}
}
