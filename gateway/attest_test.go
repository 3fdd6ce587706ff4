package gateway

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/credential/bundle"
	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/internal/munge"
)

// A stolen bundle is worth nothing to another uid, and what the thief tried costs the owner nothing.
func TestStolenBundleOfAnotherUID(t *testing.T) {
	r, n := attesting(t)
	w := r.create(2)
	line, me := w.lines[0][0], n.as(os.Getuid())
	thief := r.dial()
	thief.attested(line, agentOf("666", "thief"), n.as(bob))
	r.refusedAttest(thief, 1, fmt.Sprintf("uid %d of n1", bob))
	assert.Equal(t, uint64(1), r.server.counters.snapshot(r.server.slots).Rejected["attest"])

	// Not burned, and the epoch isn't bound to the thief's job.
	owner := r.dial()
	owner.attested(line, agentOf("7", "a"), me).admitted()
	other := r.dial()
	other.attested(w.lines[0][1], agentOf("7", "b"), me).admitted()
	r.eventually("released", func() bool { return w.view().Phase == "ACTIVE" })
	for _, d := range r.dialIns()[1:] {
		assert.NotContains(t, d, "attest")
	}
	assert.NotContains(t, r.auditText(), "MUNGE:", "no attestation is kept")
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.Empty(t, w.peers[0].agent.Attest)
}

func TestAttestationsThatAreRefused(t *testing.T) {
	r, n := attesting(t)
	w := r.create(2)
	line, me := w.lines[0][0], n.as(os.Getuid())
	count := 0
	for _, tt := range []struct {
		name string
		say  func(c *client)
		why  string
	}{
		{"missing", func(c *client) { c.hello(line, agentOf("7", "a")) }, "missing"},
		{"no agent of ours", func(c *client) { c.hello(line, nil) }, "missing"},
		{"made for another connection", func(c *client) {
			a := agentOf("7", "a")
			a.Attest = r.dial().attestation(line, me)
			c.hello(line, a)
		}, "made for another connection"},
		{"made for another rank's credential", func(c *client) {
			a := agentOf("7", "a")
			a.Attest = c.attestation(w.lines[0][1], me)
			c.hello(line, a)
		}, "made for another connection"},
		{"made for control over TCP", func(c *client) {
			payload, err := api.RemotePayload(c.conn.(*tls.Conn).ConnectionState())
			require.NoError(t, err)
			made, err := munge.Make(t.Context(), me, payload)
			require.NoError(t, err)
			a := agentOf("7", "a")
			a.Attest = string(made)
			c.hello(line, a)
		}, "made for another connection"},
		{"no credential of MUNGE's", func(c *client) {
			a := agentOf("7", "a")
			a.Attest = "MUNGE:$(id):"
			c.hello(line, a)
		}, "malformed"},
		{"another user", func(c *client) { c.attested(line, agentOf("7", "a"), n.as(os.Getuid()+1)) }, fmt.Sprintf("uid %d of n1", os.Getuid()+1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := r.dial()
			tt.say(c)
			count++
			r.refusedAttest(c, count, tt.why)
		})
	}
	t.Run("too long", func(t *testing.T) {
		a := agentOf("7", "a")
		a.Attest = strings.Repeat("A", wire.MaxAttest+1)
		assert.Equal(t, wire.Refused, r.dial().hello(line, a).line())
		count++
		_, cause := r.lastDialIn(count)
		assert.Equal(t, "malformed", cause)
	})
	r.dial().attested(line, agentOf("7", "a"), me).admitted() // none of them burned it
}

// An attestation is good once, also on its own connection's credential.
func TestReplayedAttestation(t *testing.T) {
	r, n := attesting(t)
	w := r.create(2)
	line, me := w.lines[0][0], n.as(os.Getuid())
	first := r.dial()
	a := agentOf("7", "a")
	a.Attest = first.attestation(line, me)
	first.hello(line, a).admitted()
	r.lastDialIn(1) // the record comes after the answer
	thief := r.dial()
	again := agentOf("7", "a")
	again.Attest = a.Attest
	thief.hello(line, again)
	r.refusedAttest(thief, 2, "replayed")
}

// What is refused anyway doesn't trouble MUNGE, and who has no signed credential can't.
func TestAttestationComesLate(t *testing.T) {
	r, n := attesting(t)
	require.NoError(t, os.WriteFile(n.down, nil, 0o600))
	w := r.create(2)
	forged := bytes.Replace(w.lines[0][0], []byte(`"rank": 0`), []byte(`"rank": 1`), 1)
	assert.Equal(t, wire.Refused, r.dial().attested(forged, agentOf("7", "a"), n.as(os.Getuid())).line())
	w.edit(func(rec *record) { rec.Cancel = "now" })
	assert.Equal(t, wire.Refused, r.dial().attested(w.lines[0][0], agentOf("7", "a"), n.as(os.Getuid())).line())
	_, cause := r.lastDialIn(2)
	assert.Equal(t, causeFenced, cause)
}

// While MUNGE has no opinion nobody is refused: the connection is closed unanswered, nothing is burned, and the log says
// so once.
func TestMungeDownForRanks(t *testing.T) {
	var log bytes.Buffer
	n := newNotary(t)
	r := newRig(t, func(c *Config) { c.Attest, c.Unmunge = AttestMunge, n.unmunge })
	r.server.log = zerolog.New(zerolog.SyncWriter(&log))
	r.serve()
	w := r.create(2)
	line, me := w.lines[0][0], n.as(os.Getuid())
	require.NoError(t, os.WriteFile(n.down, nil, 0o600))
	for i := range 3 {
		c := r.dial()
		assert.Empty(t, c.attested(line, agentOf("7", "a"), me).line())
		verdict, cause := r.lastDialIn(i + 1)
		assert.Equal(t, "unanswered", verdict)
		assert.Contains(t, cause, "Did you start munged?")
	}
	assert.Empty(t, r.server.counters.snapshot(r.server.slots).Rejected)
	require.NoError(t, os.Remove(n.down))
	r.dial().attested(line, agentOf("7", "a"), me).admitted()
	r.halt()
	assert.Equal(t, 1, strings.Count(log.String(), "no rank is admitted: look at munged on this host"), "once a minute: %s", log.String())
}

// A rank that waits too long for its turn gets no answer, and may come again.
func TestAttestationWithinTheDeadline(t *testing.T) {
	n := newNotary(t)
	slow := filepath.Join(t.TempDir(), "slow")
	require.NoError(t, os.WriteFile(slow, nil, 0o600))
	r := newRig(t, func(c *Config) {
		c.Attest, c.Handshake = AttestMunge, 1500*time.Millisecond
		c.Unmunge = script(t, "[ -e "+slow+" ] && exec sleep 20; exec "+n.unmunge)
	}).serve()
	w := r.create(2)
	line, me := w.lines[0][0], n.as(os.Getuid())
	assert.Empty(t, r.dial().attested(line, agentOf("7", "a"), me).line())
	verdict, _ := r.lastDialIn(1)
	assert.NotEqual(t, "refused", verdict)
	r.noSlotTaken()
	require.NoError(t, os.Remove(slow))
	r.dial().attested(line, agentOf("7", "a"), me).admitted()
}

// A whole gang at once gets through, a few attestations at a time.
func TestGangAttests(t *testing.T) {
	r, n := attesting(t, func(c *Config) { c.Handshake = time.Minute })
	const size = 2 * unmungeAtATime
	w := r.create(size)
	me := n.as(os.Getuid())
	var wg sync.WaitGroup
	for rank := range size {
		c := r.dial()
		a := agentOf("7", fmt.Sprint(rank))
		a.Attest = c.attestation(w.lines[0][rank], me)
		wg.Go(func() { c.hello(w.lines[0][rank], a) })
	}
	wg.Wait()
	r.eventually("released", func() bool { return w.view().Phase == "ACTIVE" })
}

// A cut connection comes back without an attestation: its credential was in one attested process's memory alone. A
// lost answer's first credential was in a file, and needs one.
func TestWhatIsAttestedAgain(t *testing.T) {
	r, n := attesting(t)
	w := r.create(2)
	line, me := w.lines[0][0], n.as(os.Getuid())
	lost := r.dial()
	lost.attested(line, agentOf("7", "a"), me).admitted()
	r.lastDialIn(1) // the record comes after the answer
	lost.conn.Close()
	c := r.dial()
	c.hello(line, agentOf("7", "a"))
	r.refusedAttest(c, 2, "missing")
	c = r.dial()
	answer := c.attested(line, agentOf("7", "a"), me).admitted()
	c.send(wire.Heartbeat, nil)
	c.conn.Close()
	require.NoError(t, os.WriteFile(n.down, nil, 0o600))
	r.dial().hello([]byte(answer.Resume), agentOf("7", "a")).admitted()
	thief := r.dial()
	thief.hello([]byte(answer.Resume), agentOf("7", "thief")) // he has no attempt secret
	assert.Equal(t, wire.Refused, thief.line())
}

// With TLS optional, peers without TLS have nothing to bind an attestation to.
func TestAttestationNeedsTLS(t *testing.T) {
	r, _ := attesting(t, func(c *Config) { c.TLSMode = "optional" })
	w := r.create(2)
	c := r.plainTCP()
	a := agentOf("7", "a")
	a.Attest = "MUNGE:YQ==:"
	c.hello(w.lines[0][0], a)
	r.refusedAttest(c, 1, "missing")

	for _, bad := range []Config{{Attest: AttestMunge, TLSMode: "off"}, {Attest: "tpm", TLSMode: "required"}} {
		_, err := New(bad, Parts{})
		assert.ErrorContains(t, err, "attestation")
	}
}

// The bundle tells agents, and where it is off everything is as ever.
func TestBundleTellsOfAttestation(t *testing.T) {
	r, _ := attesting(t, func(c *Config) { c.Munge = "/opt/munge/bin/munge" })
	head := func(r *rig, w *workload) bundle.Header {
		made, err := r.server.bundles(t.Context(), w.rec)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "gang-0.bundle")
		require.NoError(t, os.WriteFile(path, made.Bundles[0], 0o600))
		h, err := bundle.ReadHeader(path)
		require.NoError(t, err)
		return h
	}
	h := head(r, r.create(1))
	assert.Equal(t, []string{"munge", "/opt/munge/bin/munge"}, []string{h.Attest, h.Munge})
	assert.Equal(t, bundle.AttestMunge, AttestMunge)
	assert.Equal(t, munge.Max, wire.MaxAttest)

	r.restart()
	w := r.create(2)
	h = head(r, w)
	assert.Empty(t, h.Attest+h.Munge)
	r.dial().hello(w.lines[0][0], agentOf("7", "a")).admitted()
	a := agentOf("7", "b")
	a.Attest = "MUNGE:YQ==:" // of a bundle from before
	r.dial().hello(w.lines[0][1], a).admitted()
}
