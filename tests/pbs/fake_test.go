//go:build !live

package pbs_test

import (
	"os"
	"testing"
	"time"

	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
)

func runAll(m *testing.M) int { return lab.Main(m) }

// shared is a folder that every host sees; short, since sockets lie below it.
func shared() string { return "/tmp" }

func home(dir string) string { return dir }

type fake struct{ *lab.Lab }

func (f fake) path() string            { return f.Bin + ":/usr/local/bin:/usr/bin:/bin" }
func (f fake) gateway() string         { return "" }
func (f fake) patience() time.Duration { return 90 * time.Second }
func (f fake) profile() string {
	return "max_nodes = 4\nmax_ranks_per_node = 4\nwalltime = \"10m\"\nqueue = \"workq\"\n"
}

// newCluster is a fresh fake, or the real PBS.
func newCluster(t *testing.T) cluster { return fakeWith(t, func(*fakepbs.Config) {}) }

func fakeWith(t *testing.T, change func(*fakepbs.Config)) fake {
	t.Helper()
	if os.Getenv("USER") == "" {
		t.Setenv("USER", "tester")
	}
	config := fakepbs.Default()
	change(&config)
	return fake{lab.Start(t, config)}
}

// serverFiles are what the server and the hosts keep of a job.
func serverFiles(w *world) places { return tree(w.t, w.pbs.(fake).Dir) }
