//go:build !live

package pbs_test

import (
	"flag"
	"os"
	"os/user"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	testusers "github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
)

func runAll(m *testing.M) int {
	flag.Parse()
	// Most tests wait for something to end: many of them at a time fit on few cores.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	return lab.Main(m)
}

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

// user is an unprivileged one, whoever runs the test.
func (f fake) user(t *testing.T) account { return someone(t, testusers.Alice) }

// someone is a user of the tests, or whoever runs them where that isn't root.
func someone(t *testing.T, name string) account {
	t.Helper()
	if os.Getuid() != 0 {
		me, err := user.Current()
		require.NoError(t, err)
		return account{name: me.Username}
	}
	u := testusers.FindUser(t, name)
	return account{name: u.Name, credential: &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: []uint32{uint32(u.GID)}}}
}

// newCluster is a fresh fake, or the real PBS.
func newCluster(t *testing.T) cluster { return fakeWith(t, func(*fakepbs.Config) {}) }

func fakeWith(t *testing.T, change func(*fakepbs.Config)) fake {
	t.Helper()
	t.Parallel()
	config := fakepbs.Default()
	change(&config)
	return fake{lab.Start(t, config)}
}

// serverFiles are what the server and the hosts keep of a job.
func serverFiles(w *world) places { return tree(w.t, w.pbs.(fake).Dir) }

// toOthers adds what another unprivileged user is shown of a job and of the machine.
func toOthers(w *world, shown places, job string) {
	w.t.Helper()
	bob := someone(w.t, testusers.Bob)
	for _, look := range []struct{ command, sees string }{
		{"qstat -f " + job, "Job_Name"},
		{"qstat -x -f -F json " + job, "Job_Name"},
		{"pbsnodes -a -F json", job},
		{"cat /proc/[0-9]*/cmdline 2>/dev/null", "--rank"},
		{"cat /proc/[0-9]*/environ 2>/dev/null", "PATH="},
		{"ls -laR " + w.dir + " " + w.state + " " + w.pbs.(fake).Dir + " 2>&1", "aux"},
		{"find " + w.dir + " " + w.state + " " + w.pbs.(fake).Dir + ` -type f -size -4000k -exec grep -Hza "" {} + 2>/dev/null`, "/aux/"},
		{"openai4s status --embedded --json 2>&1", ""},
	} {
		e := w.as(bob, "sh", "-c", look.command)
		require.Contains(w.t, e.stdout, look.sees, "%s: %s", look.command, e.stderr)
		shown["to another user: "+look.command] = e.stdout + e.stderr
	}
}

// as runs a command as somebody else.
func (w *world) as(who account, name string, args ...string) ended {
	w.t.Helper()
	return w.startAs(who, name, args...).wait()
}
