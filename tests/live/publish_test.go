//go:build live

package live_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

const marker = "__lspo_complete.json"

// published is a job of four ranks with two inputs, whose outputs are published to a folder of the user's.
type published struct {
	alice *rig.User
	id    string
	dir   string // of the job file, which is its workdir
	dest  string
}

// publishing submits such a job. Each rank counts the lines of both inputs into out/<rank>.csv, then runs after.
func publishing(t *testing.T, r *rig.Rig, after, more string) *published {
	t.Helper()
	p := &published{alice: r.Alice(t)}
	p.dest = filepath.Join(p.alice.Home, "results")
	p.alice.Write(t, "rows.csv", "1\n2\n3\n")
	job := p.alice.JobFile(t, rig.Shell(4, `set -e
mkdir -p out/deep
cat ../rows.csv model/weights.txt | wc -l >out/$RANK.csv
echo "rank $RANK" >out/deep/$RANK.txt
echo "not published" >left-$RANK.txt
`+after, fmt.Sprintf(`%s
[[inputs]]
path = %q
[[inputs]]
path = "model/weights.txt"
[outputs]
publish = %q
[outputs.ports]
tables = ["out/*.csv"]
all = ["out/**"]
`, more, filepath.Join(p.alice.Home, "rows.csv"), p.dest)))
	p.dir = filepath.Dir(job)
	rel, err := filepath.Rel(p.alice.Home, p.dir)
	require.NoError(t, err)
	p.alice.Write(t, filepath.Join(rel, "model", "weights.txt"), "a\nb\n")
	ran := p.alice.Run(t, "submit", "--json", job)
	require.Zero(t, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
	p.id = ran.Doc(t).Text("id")
	return p
}

// marker is the receipt, whose identity is held against the workload's.
func (p *published) marker(t *testing.T) rig.Doc {
	t.Helper()
	m := rig.ParseDoc(t, p.alice.Read(t, filepath.Join(p.dest, marker)))
	number, err := strconv.ParseInt(strings.TrimPrefix(p.id, "wl_"), 16, 64)
	require.NoError(t, err)
	require.Equal(t, p.id, m.Text("workload"))
	require.EqualValues(t, number, m.Int("execution_id"))
	require.Equal(t, 1, m.Int("attempt"))
	require.Equal(t, 1, m.Int("generation"))
	return m
}

// objects are the inventory's names, each held against the file itself.
func (p *published) objects(t *testing.T, m rig.Doc) (names []string) {
	t.Helper()
	for _, o := range m.List("objects") {
		o := rig.Doc(o.(map[string]any))
		data := p.alice.Read(t, filepath.Join(p.dest, o.Text("relpath")))
		sum := sha256.Sum256([]byte(data))
		require.Equal(t, hex.EncodeToString(sum[:]), o.Text("sha256"), o.Text("relpath"))
		require.Equal(t, len(data), o.Int("size"), o.Text("relpath"))
		names = append(names, o.Text("relpath"))
	}
	return names
}

// verify is what "openai4s verify" finds: kinds and paths.
func (p *published) verify(t *testing.T) (problems []string) {
	t.Helper()
	ran := p.alice.Run(t, "verify", "--json", p.dest)
	d := ran.Doc(t)
	for _, found := range d.List("problems") {
		found := rig.Doc(found.(map[string]any))
		problems = append(problems, strings.TrimSpace(found.Text("kind")+" "+found.Text("path")))
	}
	require.Equal(t, len(problems) == 0, ran.Code == 0, "%s%s", ran.Stdout, ran.Stderr)
	return problems
}

// everything is what all four ranks leave.
var everything = []string{"out/0.csv", "out/1.csv", "out/2.csv", "out/3.csv",
	"out/deep/0.txt", "out/deep/1.txt", "out/deep/2.txt", "out/deep/3.txt", "result.json"}

// TestPublished: a job's outputs come out with an inventory and a marker, and verify agrees.
func TestPublished(t *testing.T) {
	t.Parallel()
	p := publishing(t, newRig(t), "", "")
	w := p.alice.AwaitEnd(t, p.id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	m := p.marker(t)
	require.Equal(t, "succeeded", m.Text("status"), "%s", m)
	require.Zero(t, m.Int("exit_code"))
	require.Equal(t, everything, p.objects(t, m))
	require.Equal(t, []any{"out/0.csv", "out/1.csv", "out/2.csv", "out/3.csv"}, m.List("produced_ports", "tables"))
	require.Len(t, m.List("produced_ports", "all"), 8)
	require.Equal(t, "5\n", p.alice.Read(t, filepath.Join(p.dest, "out", "3.csv")))
	require.NoFileExists(t, filepath.Join(p.dest, "left-0.txt"))
	require.Empty(t, p.verify(t))

	require.NoError(t, os.WriteFile(filepath.Join(p.dest, "out", "3.csv"), []byte("6\n"), 0o644))
	require.Equal(t, []string{"changed out/3.csv"}, p.verify(t), "verify looks at the bytes")
}

// TestPublishedThoughCancelled: whether its owner or the scheduler ends a job half way, the marker says cancelled and
// names what was there.
func TestPublishedThoughCancelled(t *testing.T) {
	t.Parallel()
	for name, cancel := range map[string]func(*testing.T, *published, rig.Doc){
		"by its owner": func(t *testing.T, p *published, _ rig.Doc) {
			require.Zero(t, p.alice.Run(t, "cancel", p.id).Code)
		},
		"in the scheduler": func(t *testing.T, p *published, w rig.Doc) {
			require.Zero(t, p.alice.Exec(t, "scancel", w.Text("job", "id")).Code)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publishing(t, newRig(t), "touch done-$RANK; exec sleep 600", "")
			w := p.alice.AwaitPhase(t, p.id, "ACTIVE")
			rig.Await(t, rig.Patience, "every rank to be half way", func() bool {
				done, err := filepath.Glob(filepath.Join(p.dir, "done-*"))
				return err == nil && len(done) == 4
			})
			require.NoFileExists(t, filepath.Join(p.dest, marker), "nothing is over yet")
			cancel(t, p, w)
			w = p.alice.AwaitEnd(t, p.id)
			require.Equal(t, "CANCELLED", w.Phase(), "%s", w)
			m := p.marker(t)
			require.Equal(t, "cancelled", m.Text("status"), "%s", m)
			require.NotZero(t, m.Int("exit_code"))
			require.NotEmpty(t, m.Text("error"))
			require.Equal(t, everything, p.objects(t, m))
			require.Equal(t, []string{"not_succeeded"}, p.verify(t), "all that it names is whole; the job wasn't")
		})
	}
}

// TestInputChangedBetweenSubmitAndStart: it is refused by name with both hashes, the command never runs, and the marker
// says so.
func TestInputChangedBetweenSubmitAndStart(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Profiles: "[profiles.default]\nmax_nodes = 4\ndirectives = [\"--hold\"]\n"})
	p := publishing(t, r, "", "")
	w := p.alice.AwaitPhase(t, p.id, "PENDING")
	weights := filepath.Join(p.dir, "model", "weights.txt")
	require.NoError(t, os.WriteFile(weights, []byte("a\nB\n"), 0o644)) // as long as before
	shared.Slurm(t, "scontrol", "release", w.Text("job", "id"))
	w = p.alice.AwaitEnd(t, p.id)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)

	before, now := sha256.Sum256([]byte("a\nb\n")), sha256.Sum256([]byte("a\nB\n"))
	m := p.marker(t)
	require.Equal(t, "failed", m.Text("status"), "%s", m)
	for where, text := range map[string]string{
		"the job's output": p.alice.Read(t, w.Text("output")), "status": w.Text("message"), "the marker": m.Text("error"),
	} {
		for _, word := range []string{"model/weights.txt", hex.EncodeToString(before[:]), hex.EncodeToString(now[:])} {
			require.Contains(t, text, word, where)
		}
	}
	require.NoDirExists(t, filepath.Join(p.dir, "out"), "no command ran")
	require.Equal(t, []string{"result.json"}, p.objects(t, m))
	require.Equal(t, []string{"not_succeeded"}, p.verify(t))
}

// TestCase56NoEndIsShownBeforeTheMarker: whoever is told that a job is over finds its marker, however long publishing
// takes.
func TestCase56NoEndIsShownBeforeTheMarker(t *testing.T) {
	t.Parallel()
	p := publishing(t, newRig(t), "truncate -s 32M out/large-$RANK.bin", "")
	unfinished := 0
	rig.Await(t, rig.Patience, "the end", func() bool {
		w := p.alice.Status(t, p.id) // first what is told, then what is there
		_, err := os.Stat(filepath.Join(p.dest, marker))
		if w.Over() {
			require.NoError(t, err, "%s", w)
			require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
			return true
		}
		if err != nil {
			unfinished++
		}
		return false
	})
	require.NotZero(t, unfinished)
	require.Len(t, p.objects(t, p.marker(t)), len(everything)+4)
	require.Empty(t, p.verify(t))
}

// TestCase57MarkerOnAWalltimeKill: the scheduler's TERM at the walltime writes no marker; the command's own end does,
// with what the command still left on its way out.
func TestCase57MarkerOnAWalltimeKill(t *testing.T) {
	t.Parallel()
	// TERM comes from the scheduler and from the agent, to every process of the rank.
	p := publishing(t, newRig(t), `
last() {
	trap '' TERM
	sleep 0.5
	if test -e `+"../results/"+marker+`; then echo early; fi >out/last-$RANK.csv
	exit 0
}
set +e
trap last TERM
while :; do sleep 0.2; done
`, "walltime = \"1m\"\n[signal]\nbefore_walltime = \"0s\"")
	var w rig.Doc
	rig.Await(t, 3*time.Minute, "the walltime, which the scheduler looks at twice a minute", func() bool {
		w = p.alice.Status(t, p.id)
		return w.Over()
	})
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	require.Equal(t, "TIME_LIMIT_EXCEEDED", w.Text("reason"), "%s", w)
	m := p.marker(t)
	require.NotEqual(t, "succeeded", m.Text("status"), "%s", m)
	names := p.objects(t, m)
	for rank := range 4 {
		name := fmt.Sprintf("out/last-%d.csv", rank)
		require.Contains(t, names, name)
		require.Empty(t, p.alice.Read(t, filepath.Join(p.dest, name)), "there was no marker while the command lived")
	}
	require.Equal(t, []string{"not_succeeded"}, p.verify(t))
}
