package credential

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkBurn is one burn with its sync, beside ever more live nonces: flat, within a factor of two.
func BenchmarkBurn(b *testing.B) {
	for _, live := range []int{64, 4096, 65_536, 1_000_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			g, l := newFaulty(b)
			fill(b, l.DB, "alloc_live", live, fixedExpiry)
			stop := run(b, g.Fence)
			defer stop()
			i := 0
			for b.Loop() {
				c := Claim{Allocation: "alloc_bench", Epoch: 1, Rank: i % 4096, Expires: fixedExpiry, Nonce: NewNonce()}
				if _, err := g.Fence.burn(context.Background(), c, 0, attempt("a")); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// BenchmarkAdmitAtOnce admits 4,096 ranks at once, each waiting for its own answer.
func BenchmarkAdmitAtOnce(b *testing.B) {
	const size = 4096
	g, l := newFaulty(b)
	stop := run(b, g.Fence)
	defer stop()
	admitted := 0
	for b.Loop() {
		b.StopTimer()
		lines := make([][]byte, size)
		for rank := range lines {
			lines[rank] = g.Secret.Issue(Claim{Allocation: "alloc_01", Epoch: 1, Rank: rank, Expires: fixedExpiry, Nonce: NewNonce()})
		}
		b.StartTimer()
		var wg sync.WaitGroup
		for _, line := range lines {
			wg.Go(func() {
				if _, err := g.Admit(context.Background(), line, attempt("a"), ranks(size)); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		admitted += size
	}
	b.ReportMetric(float64(admitted)/b.Elapsed().Seconds(), "ranks/s")
	b.ReportMetric(float64(admitted)/float64(l.commits.Load()), "burns/sync")
}

// At 4,096 at once, at least 20 burns share a sync.
func TestBurnsShareSyncs(t *testing.T) {
	const size = 4096
	g, l := newFaulty(t)
	run(t, g.Fence)
	var wg sync.WaitGroup
	for rank := range size {
		c := Claim{Allocation: "alloc_01", Epoch: 1, Rank: rank, Expires: fixedExpiry, Nonce: NewNonce()}
		wg.Go(func() {
			_, err := g.Fence.burn(context.Background(), c, 0, attempt("a"))
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	burned, _, _ := counts(t, l)
	require.Equal(t, size, burned)
	require.Less(t, l.commits.Load(), int64(size/20))
}

// BenchmarkVerify reads and verifies one line.
func BenchmarkVerify(b *testing.B) {
	s := testSecret("a")
	line := hello(s.Issue(claim()), `"agent": {"protocol": "openai4s/1", "version": "1.0", "attempt": "00", "job": "1", "host": "n1"}`)
	for b.Loop() {
		c, signature, err := parse(line)
		if err != nil || !s.verify(c, signature) {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenFence reads a million records when the daemon starts.
func BenchmarkOpenFence(b *testing.B) {
	_, l := newFaulty(b)
	fill(b, l.DB, "alloc_live", 1_000_000, fixedExpiry)
	for b.Loop() {
		if _, err := openFence(l); err != nil {
			b.Fatal(err)
		}
	}
}
