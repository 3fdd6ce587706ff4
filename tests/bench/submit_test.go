package bench_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m, func(testing.TB) {})) }

// BenchmarkSubmitToRunning is the time from the start of `openai4s submit` until the command of every rank runs, on this
// machine's own scheduler with a daemon that is up. Beside it, in the same run, the time in which this process starts the
// same commands bare: no script, no agents, no TLS.
func BenchmarkSubmitToRunning(b *testing.B) {
	for _, ranks := range []int{4, 16, 64} {
		b.Run(fmt.Sprintf("%d_ranks", ranks), func(b *testing.B) {
			r := rig.New(b, rig.Options{Profiles: "[profiles.default]\nmax_nodes = 64\nwalltime = \"5m\"\n"})
			alice := r.Alice(b)
			var ours, bare time.Duration
			n := 0
			for b.Loop() {
				n++
				dir := filepath.Join(alice.Home, fmt.Sprintf("round%d-%d", ranks, n))
				require.NoError(b, os.Mkdir(dir, 0o755))
				bare += startBare(b, filepath.Join(dir, "bare"), ranks)
				ours += submit(b, alice, filepath.Join(dir, "ours"), ranks)
			}
			b.ReportMetric(float64(ours.Milliseconds())/float64(n), "ms/submit-to-running")
			b.ReportMetric(float64(bare.Milliseconds())/float64(n), "ms/bare-processes")
			b.ReportMetric(ours.Seconds()/bare.Seconds(), "ratio")
			b.ReportMetric(0, "ns/op") // what a round takes as a whole, its end included, says nothing
		})
	}
}

// script leaves a mark that it runs and goes once it may.
func script(dir string) string {
	return fmt.Sprintf(`: >%q/up.$RANK; while ! test -e %q/go; do sleep 0.05; done`, dir, dir)
}

func submit(b *testing.B, alice *rig.User, dir string, ranks int) time.Duration {
	b.Helper()
	require.NoError(b, os.Mkdir(dir, 0o777))
	began := time.Now()
	id := alice.Submit(b, rig.Shell(ranks, script(dir), ""))
	took := running(b, dir, ranks, began)
	require.NoError(b, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	require.Equal(b, "COMPLETED", alice.AwaitEnd(b, id).Phase())
	return took
}

func startBare(b *testing.B, dir string, ranks int) time.Duration {
	b.Helper()
	require.NoError(b, os.Mkdir(dir, 0o777))
	var all sync.WaitGroup
	defer all.Wait()
	began := time.Now()
	for rank := range ranks {
		cmd := exec.Command("sh", "-c", script(dir))
		cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", rank))
		require.NoError(b, cmd.Start())
		all.Go(func() { _ = cmd.Wait() }) // it ends when it may
	}
	took := running(b, dir, ranks, began)
	require.NoError(b, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	return took
}

// running waits until every rank has left its mark.
func running(b *testing.B, dir string, ranks int, began time.Time) time.Duration {
	b.Helper()
	end := began.Add(rig.Patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		up, err := filepath.Glob(filepath.Join(dir, "up.*"))
		require.NoError(b, err)
		if len(up) == ranks {
			return time.Since(began)
		}
		require.True(b, time.Now().Before(end), "%d of %d ranks run", len(up), ranks)
		<-tick.C
	}
}
