package gateway

import (
	"testing"
	"time"
)

// BenchmarkUnderAttack registers a gang of 1,024 twice in the same run: undisturbed, and while 10,000 hostile peers from
// four addresses hold every slot. Each of them comes back when it was thrown out, after 5 s or 2 s on average: at
// least 2,000 or 5,000 new connections a second. It reports both times and their ratio, how many ranks had to come back, and how many
// peers were evicted a round. No rank may be refused. The attack shares the machine: what its own processes take of the
// processors is in the ratio.
func BenchmarkUnderAttack(b *testing.B) {
	const size, hostile = 1024, 10_000
	needDescriptors(b, hostile+200)
	for _, away := range []time.Duration{5 * time.Second, 2 * time.Second} {
		b.Run("back-after-"+away.String(), func(b *testing.B) {
			var alone, disturbed time.Duration
			var again int64
			var evicted uint64
			for range b.N {
				r, took, _ := underAttack(b, size, 0, 0)
				r.halt()
				alone += took
				r, took, n := underAttack(b, size, hostile, away)
				r.halt()
				disturbed += took
				again += n
				evicted += r.server.counters.evicted.Load()
			}
			rounds := float64(b.N)
			b.ReportMetric(alone.Seconds()/rounds, "s-undisturbed")
			b.ReportMetric(disturbed.Seconds()/rounds, "s-attacked")
			b.ReportMetric(disturbed.Seconds()/alone.Seconds(), "ratio")
			b.ReportMetric(float64(again)/rounds, "came-back")
			b.ReportMetric(float64(evicted)/rounds, "evicted")
			b.ReportMetric(0, "ns/op")
		})
	}
}
