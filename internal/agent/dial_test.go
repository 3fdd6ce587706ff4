package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/credential/bundle"
	"github.com/openai4s/hpc/gateway/wire"
)

func dup(t *testing.T, f *os.File) int {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	return fd
}

// identity is a gateway's TLS key, and its pin.
func identity(t testing.TB) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	spki, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	sum := sha256.Sum256(spki)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, "sha256:" + hex.EncodeToString(sum[:])
}

// door is a listener that treats every connection in its own way.
type door struct {
	ln   net.Listener
	mu   sync.Mutex
	seen int
}

func open(t *testing.T, network, address string, each func(n int, c net.Conn)) *door {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("this machine can't listen on %s: %v", address, err)
	}
	d := &door{ln: ln}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			n := d.seen
			d.seen++
			d.mu.Unlock()
			wg.Go(func() { defer c.Close(); each(n, c) })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return d
}

func (d *door) addr() string { return d.ln.Addr().String() }

func (d *door) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

// admit reads the hello and answers.
func admit(c net.Conn) {
	if _, _, err := wire.ReadHello(c); err == nil {
		_, _ = c.Write(wire.Accepted("kernel:1", []byte("{}")))
	}
}

func dialerTo(addresses ...string) *dialer {
	return &dialer{
		head:  bundle.Header{Addresses: addresses, TLS: "off"},
		hello: func(context.Context, net.Conn) ([]byte, error) { return []byte("{}\n"), nil },
	}
}

func try(t *testing.T, d *dialer, within time.Duration) (admitted, error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), within, errors.New("gave up after all"))
	defer cancel()
	a, err := d.dial(ctx)
	if err == nil {
		t.Cleanup(func() { a.conn.Close() })
	}
	return a, err
}

// Case 39: a list of addresses under one deadline; dead ones don't matter.
func TestCase39DeadAddresses(t *testing.T) {
	good := open(t, "tcp", "127.0.0.1:0", func(_ int, c net.Conn) { admit(c) })
	a, err := try(t, dialerTo("127.0.0.1:1", "no-such-host.invalid:1", good.addr()), 20*time.Second)
	require.NoError(t, err)
	assert.Equal(t, good.addr(), a.address, "it is told which one worked")
	assert.Equal(t, "{}", a.answer.Resume)
}

// Case 41: a connection that is closed before an answer is busy, and tried again.
func TestCase41BusyIsTriedAgain(t *testing.T) {
	d := open(t, "tcp", "127.0.0.1:0", func(n int, c net.Conn) {
		if n >= 3 {
			admit(c)
		}
	})
	_, err := try(t, dialerTo(d.addr()), 20*time.Second)
	require.NoError(t, err)
	assert.Equal(t, 4, d.count())
}

func TestRefusedIsFinal(t *testing.T) {
	d := open(t, "tcp", "127.0.0.1:0", func(_ int, c net.Conn) {
		_, _, _ = wire.ReadHello(c)
		_, _ = c.Write([]byte(wire.Refused))
	})
	_, err := try(t, dialerTo(d.addr(), "127.0.0.1:1"), 20*time.Second)
	assert.ErrorIs(t, err, errRefused)
	assert.ErrorContains(t, err, d.addr())
	assert.Equal(t, 1, d.count())
}

// Case 42: in the end it is said what each address answered.
func TestCase42WhatEachAddressSaid(t *testing.T) {
	busy := open(t, "tcp", "127.0.0.1:0", func(_ int, c net.Conn) { _, _, _ = wire.ReadHello(c) })
	_, err := try(t, dialerTo("127.0.0.1:1", busy.addr(), "nowhere.invalid:8761"), time.Second)
	assert.ErrorContains(t, err, "127.0.0.1:1: connect: connection refused")
	assert.ErrorContains(t, err, busy.addr()+": busy: it closed the connection without an answer")
	assert.ErrorContains(t, err, "nowhere.invalid:8761: lookup nowhere.invalid")
	assert.ErrorContains(t, err, "gave up after all")
}

// Case 43: a proxy is never asked.
func TestCase43ProxiesAreIgnored(t *testing.T) {
	proxy := open(t, "tcp", "127.0.0.1:0", func(int, net.Conn) {})
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://"+proxy.addr())
	}
	good := open(t, "tcp", "127.0.0.1:0", func(_ int, c net.Conn) { admit(c) })
	_, err := try(t, dialerTo(good.addr()), 20*time.Second)
	require.NoError(t, err)
	assert.Zero(t, proxy.count())
}

// Case 44: an IPv6 literal.
func TestCase44IPv6Literal(t *testing.T) {
	good := open(t, "tcp6", "[::1]:0", func(_ int, c net.Conn) { admit(c) })
	_, err := try(t, dialerTo(good.addr()), 20*time.Second)
	require.NoError(t, err)
}

// A gateway whose key is not the pinned one reads no byte of the credential.
func TestWrongPinIsSentNothing(t *testing.T) {
	config, right := identity(t)
	_, wrong := identity(t)
	got := make(chan []byte, 100)
	d := open(t, "tcp", "127.0.0.1:0", func(_ int, c net.Conn) {
		s := tls.Server(c, config)
		_ = s.Handshake()
		b := make([]byte, 100)
		n, _ := s.Read(b)
		got <- b[:n]
		_, _ = s.Write(wire.Accepted("kernel:1", nil))
	})
	bad := dialerTo(d.addr())
	bad.head.TLS, bad.head.Pins = "on", []string{wrong}
	_, err := try(t, bad, 3*time.Second)
	assert.ErrorContains(t, err, "not the one pinned")
	assert.Empty(t, <-got)

	for _, pins := range [][]string{{right}, {wrong, right}} {
		good := dialerTo(d.addr())
		good.head.TLS, good.head.Pins = "on", pins
		_, err = try(t, good, 20*time.Second)
		require.NoError(t, err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	silent := open(t, "tcp", "127.0.0.1:0", func(_ int, c net.Conn) { _, _ = c.Read(make([]byte, 1)); <-t.Context().Done() })
	start := time.Now()
	_, err := try(t, dialerTo(silent.addr()), 200*time.Millisecond)
	assert.ErrorContains(t, err, "gave up after all")
	assert.Less(t, time.Since(start), 5*time.Second)
}
