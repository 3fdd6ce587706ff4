package gateway

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
)

// BenchmarkRegistration registers a whole gang that dials at once, with TLS, durable burns and the audit log, and holds
// it against a bare Go TLS 1.3 server in the same run, which accepts, reads a line, checks an HMAC and answers. Clients
// and server share the machine. It reports both rates and their ratio; bare-x25519 is the bare server without the
// hybrid key exchange.
func BenchmarkRegistration(b *testing.B) {
	raiseLimit(b)
	for _, size := range []int{64, 256, 1024, 4096} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var ours, bare, x25519 time.Duration
			for range b.N {
				ours += registerGang(b, size)
				bare += registerBare(b, size, nil)
				x25519 += registerBare(b, size, []tls.CurveID{tls.X25519})
			}
			ranks := float64(size * b.N)
			b.ReportMetric(ranks/ours.Seconds(), "ours/s")
			b.ReportMetric(ranks/bare.Seconds(), "bare/s")
			b.ReportMetric(ranks/x25519.Seconds(), "bare-x25519/s")
			b.ReportMetric(bare.Seconds()/ours.Seconds(), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func raiseLimit(t testing.TB) {
	t.Helper()
	require.NoError(t, allDescriptors())
}

// registerGang measures from the first dial to the last answer. The gang is released on the way.
func registerGang(b *testing.B, size int) time.Duration {
	r := newRig(b, func(c *Config) { c.Pending, c.Handshake = size+size/4, time.Minute }).serve()
	defer r.halt()
	w := r.create(size)
	hellos := hellosOf(b, w)
	took := dialAll(b, r.addr, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}}, hellos)
	r.eventually("all registered", func() bool { return r.server.counters.accepted.Load() == uint64(size) })
	return took
}

func registerBare(b *testing.B, size int, curves []tls.CurveID) time.Duration {
	config := bareTLS(b, curves)
	addr, halt := bareServer(b, config)
	defer halt()
	return dialAll(b, addr, &tls.Config{InsecureSkipVerify: true, CurvePreferences: curves}, bareHellos(size))
}

func bareHellos(size int) [][]byte {
	hellos := make([][]byte, size)
	for i := range hellos {
		hellos[i] = fmt.Appendf(nil, "%-600d\n", i)
	}
	return hellos
}

func bareTLS(b *testing.B, curves []tls.CurveID) *tls.Config {
	b.Helper()
	id, err := LoadIdentity(b.TempDir())
	require.NoError(b, err)
	return &tls.Config{Certificates: id.Config.Certificates, MinVersion: tls.VersionTLS13, CurvePreferences: curves}
}

// bareServer is the reference; without a config it speaks TCP alone.
func bareServer(b *testing.B, config *tls.Config) (addr string, halt func()) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	var key [32]byte
	_, _ = rand.Read(key[:])
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if config != nil {
				c = tls.Server(c, config)
			}
			wg.Go(func() { bareConn(c, key[:]) })
		}
	})
	return ln.Addr().String(), func() { ln.Close(); wg.Wait() }
}

func bareConn(c net.Conn, key []byte) {
	defer c.Close()
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return
	}
	h := hmac.New(sha256.New, key)
	h.Write(line)
	hmac.Equal(h.Sum(nil), line)
	if _, err := c.Write([]byte("{\"ok\": true}\n")); err != nil {
		return
	}
	_, _ = c.Read(make([]byte, 1)) // until the client is done
}

// dialAll has every client dial at once and returns when the last has its answer; they stay connected until then.
func dialAll(b *testing.B, addr string, config *tls.Config, hellos [][]byte) time.Duration {
	conns := make([]net.Conn, len(hellos))
	errs := make([]error, len(hellos))
	var wg sync.WaitGroup
	start := time.Now()
	for i, hello := range hellos {
		wg.Go(func() { conns[i], errs[i] = dialOne(addr, config, hello) })
	}
	wg.Wait()
	took := time.Since(start)
	for i, c := range conns {
		require.NoError(b, errs[i])
		c.Close()
	}
	return took
}

func dialOne(addr string, config *tls.Config, hello []byte) (net.Conn, error) {
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, config)
	if _, err := c.Write(hello); err != nil {
		raw.Close()
		return nil, err
	}
	answer, err := wire.ReadAnswer(bufio.NewReader(c))
	if err == nil && !answer.OK {
		err = fmt.Errorf("refused")
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return raw, nil
}
