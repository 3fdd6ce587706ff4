package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/scheduler"
)

// BenchmarkIdle is the processor time that a gateway takes for a thousand live workloads while nothing happens: its
// clocks, and every four seconds, as often as a daemon asks a scheduler, an answer that changes nothing. The ranks
// themselves are elsewhere.
func BenchmarkIdle(b *testing.B) {
	r := newRig(b)
	r.server.FactsRead(scheduler.Facts{SeesOthers: true})
	crowd(b, r, 1000)
	r.serve()
	system := &answering{verbatim: "RUNNING"}
	tick := func() {
		answer, err := system.Observe(context.Background(), r.server.Live())
		require.NoError(b, err)
		r.server.Observed(answer.Known, nil)
	}
	tick() // the first one says something new
	const rounds, every = 5, 4 * time.Second
	var used time.Duration
	for b.Loop() {
		before := processorTime(b)
		for range rounds {
			time.Sleep(every)
			tick()
		}
		used += processorTime(b) - before
	}
	b.ReportMetric(100*used.Seconds()/(float64(b.N)*rounds*every.Seconds()), "%/core")
	b.ReportMetric(0, "ns/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
