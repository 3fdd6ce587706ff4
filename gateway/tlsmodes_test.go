package gateway

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTLSModes(t *testing.T) {
	for _, tt := range []struct {
		mode          string
		plain, secure bool // served
		framesPlain   bool
	}{
		{"required", false, true, false},
		{"optional", true, true, false},
		{"off", true, false, true},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.TLSMode = tt.mode }).serve()
			w := r.create(3)
			plain := r.plainTCP().hello(w.lines[0][0], agentOf("7", "a"))
			if !tt.plain {
				assert.NotContains(t, plain.line(), "ok")
			} else {
				a := plain.admitted()
				assert.Equal(t, tt.framesPlain, a.Resume != "", "frames are for pinned TLS, or where TLS is off")
				r.eventually("registered", func() bool { return w.view().Ranks.Live == 1 })
				w.mu.Lock()
				assert.Equal(t, tt.framesPlain, w.peers[0].agent != nil)
				w.mu.Unlock()
			}
			if tt.secure {
				_, a := r.join(w, 0, 1, "7")
				assert.NotEmpty(t, a.Resume)
			}
		})
	}
}

// TestUpstreamTranscript is a run of an upstream worker, byte for byte.
func TestUpstreamTranscript(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TLSMode = "optional" }).serve()
	w := r.create(2)
	line := w.lines[0][0]
	assert.Regexp(t, `^\{"allocation_id": "alloc_[0-9a-f]{12}", "epoch": 0, "rank": 0, "expires_at": [0-9.]+, "nonce": "[A-Za-z0-9_-]{32}", "signature": "[0-9a-f]{64}"\}$`, string(line))

	c := r.plainTCP().hello(line, nil)
	assert.Regexp(t, `^\{"ok": true, "generation": "kernel:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"\}\n$`, c.line())

	again := r.plainTCP().hello(line, nil)
	assert.Equal(t, "{\"ok\": false, \"error\": \"refused\"}\n", again.line())
	assert.Error(t, again.ended(), "then close")

	// Counted, never driven, and not taken for silent.
	r.eventually("registered", func() bool { return w.view().Ranks.Live == 1 })
	r.plainTCP().hello(w.lines[0][1], nil).admitted()
	r.eventually("released", func() bool { return w.view().Phase == "ACTIVE" })
	r.clock.advance(r.server.cfg.RankLostAfter * 3)
	w.tick(r.clock.now())
	assert.Equal(t, 2, w.view().Ranks.Live)
	assert.Empty(t, w.view().Ranks.Silent)
	c.conn.Close()
	r.eventually("its end is noticed", func() bool { return w.view().Ranks.Live == 1 })
}

func TestIdentityPersists(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadIdentity(dir)
	require.NoError(t, err)
	second, err := LoadIdentity(dir)
	require.NoError(t, err)
	assert.Equal(t, first.Pin, second.Pin, "bundles of live workloads hold it")
	info, err := os.Stat(filepath.Join(dir, "tls-key.pem"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = tls.Server(far, second.Config).Handshake() }()
	c := tls.Client(near, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, c.Handshake())
	assert.Equal(t, uint16(tls.VersionTLS13), c.ConnectionState().Version)
	spki, err := x509.MarshalPKIXPublicKey(c.ConnectionState().PeerCertificates[0].PublicKey)
	require.NoError(t, err)
	sum := sha256.Sum256(spki)
	assert.Equal(t, "sha256:"+hex.EncodeToString(sum[:]), second.Pin)

	for name, content := range map[string]string{"empty": "", "no PEM": "x", "no key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tls-key.pem"), []byte(content), 0o600))
			_, err := LoadIdentity(dir)
			assert.ErrorContains(t, err, "reading the TLS key")
		})
	}
}
