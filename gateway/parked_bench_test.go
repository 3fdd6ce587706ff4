package gateway

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkParked has gangs of growing size dial in at once from a process of their own, with and without TLS, and stay.
// It reports how many were lost or refused, how often one had to dial again, the rate beside that of a bare server in the
// same run (whose clients, as agents do, offer X25519 alone), and what a parked rank costs the gateway: resident memory,
// all of it, and goroutines. The gang isn't whole (one rank stays away), so that nothing else goes on.
func BenchmarkParked(b *testing.B) {
	raiseLimit(b)
	for _, mode := range []string{"required", "off"} {
		for _, size := range []int{64, 1024, 4096, 16384} {
			b.Run(fmt.Sprintf("tls_%s/%d", mode, size), func(b *testing.B) {
				for range b.N {
					park(b, mode, size)
				}
			})
		}
	}
}

func park(b *testing.B, mode string, size int) {
	r := newRig(b, func(c *Config) { c.TLSMode, c.Pending, c.Handshake, c.Widest = mode, size, time.Minute, size+1 }).serve()
	defer r.halt()
	w := r.create(size + 1)
	hellos := hellosOf(b, w)[:size]
	bytesBefore, goroutines := resident(b), runtime.NumGoroutine()
	a, leave := load{Addr: r.addr, Plain: mode == "off", Hellos: hellos}.dialIn(b)
	r.eventually("all counted", func() bool { return r.server.counters.accepted.Load() >= uint64(a.Registered) })
	require.Equal(b, size, a.Registered)
	b.ReportMetric(float64(size-a.Registered+a.Refused), "lost")
	b.ReportMetric(float64(a.Retries)/float64(size), "redials/rank")
	b.ReportMetric(float64(size)/a.Took.Seconds(), "ranks/s")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(size), "goroutines/rank")
	now := resident(b)
	b.ReportMetric(float64(now-bytesBefore)/1000/float64(size), "kB/rank")
	b.ReportMetric(float64(now)/1e6, "MB")
	b.ReportMetric(0, "ns/op")
	leave()

	var config *tls.Config
	if mode != "off" {
		config = bareTLS(b, nil)
	}
	addr, halt := bareServer(b, config)
	defer halt()
	bare, leave := load{Addr: addr, Plain: mode == "off", Hellos: bareHellos(size)}.dialIn(b)
	require.Equal(b, size, bare.Registered)
	leave()
	b.ReportMetric(float64(size)/bare.Took.Seconds(), "bare/s")
	b.ReportMetric(bare.Took.Seconds()/a.Took.Seconds(), "ratio")
}

// resident is this process's memory, in bytes, after what can be given back was.
func resident(b *testing.B) int64 {
	b.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(b, err)
	pages, err := strconv.ParseInt(string(bytes.Fields(text)[1]), 10, 64)
	require.NoError(b, err)
	return pages * int64(os.Getpagesize())
}
