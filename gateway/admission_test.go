package gateway

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway/wire"
)

// refused is what a peer is answered whatever was wrong.
const refused = `{"ok": false, "error": "refused"}` + "\n"

// TestRefusals presents what must not be admitted. Every peer reads the same bytes; the cause is in the audit log and
// the counters alone.
func TestRefusals(t *testing.T) {
	issue := func(r *rig, c credential.Claim) []byte {
		lines, err := r.gate.Issue(t.Context(), c.Allocation, c)
		require.NoError(t, err)
		return lines[0]
	}
	claim := func(r *rig, w *workload) credential.Claim {
		return credential.Claim{Allocation: string(w.rec.current().ID), Expires: float64(r.clock.now().Add(time.Hour).Unix()), Nonce: credential.NewNonce()}
	}
	tests := []struct {
		name  string
		cause string
		line  func(r *rig, w *workload) []byte
		agent *wire.Agent
	}{
		{"garbage", credential.CauseMalformed, func(*rig, *workload) []byte { return []byte("GET / HTTP/1.1\r") }, nil},
		{"binary garbage", credential.CauseMalformed, func(*rig, *workload) []byte { return []byte{0, 255, 0x16, 3, 1} }, nil},
		{"an empty line", credential.CauseMalformed, func(*rig, *workload) []byte { return nil }, nil},
		{"no object", credential.CauseMalformed, func(*rig, *workload) []byte { return []byte(`"text"`) }, nil},
		{"deep nesting", credential.CauseMalformed, func(*rig, *workload) []byte {
			return []byte(strings.Repeat("[", 30000) + strings.Repeat("]", 30000))
		}, nil},
		{"deep nesting in our own member", credential.CauseMalformed, func(*rig, *workload) []byte {
			return []byte(`{"agent":` + strings.Repeat("[", 30000) + strings.Repeat("]", 30000) + "}")
		}, nil},
		{"an announcement that can't be read", credential.CauseMalformed, func(r *rig, w *workload) []byte {
			return append(bytes.TrimSuffix(w.lines[0][0], []byte("}")), `, "agent": {"protocol": "openai4s/9"}}`...)
		}, nil},
		{"a name twice", credential.CauseMalformed, func(r *rig, w *workload) []byte {
			return append([]byte(`{"rank": 1, `), w.lines[0][0][1:]...)
		}, nil},
		{"forged", credential.CauseSignature, func(r *rig, w *workload) []byte {
			return bytes.Replace(w.lines[0][0], []byte(`"rank": 0`), []byte(`"rank": 1`), 1)
		}, nil},
		{"a signature that is not ASCII", credential.CauseSignature, func(r *rig, w *workload) []byte {
			i := bytes.Index(w.lines[0][0], []byte(`"signature": "`)) + len(`"signature": "`)
			return append(append([]byte{}, w.lines[0][0][:i]...), `ééé"}`...)
		}, nil},
		{"expired", credential.CauseExpired, func(r *rig, w *workload) []byte {
			r.clock.advance(2 * time.Hour)
			return w.lines[0][0]
		}, nil},
		{"an old epoch", credential.CauseStaleEpoch, func(r *rig, w *workload) []byte {
			require.NoError(t, r.fence.Raise(t.Context(), string(w.rec.current().ID), 1))
			return w.lines[0][0]
		}, nil},
		{"an epoch that the gateway left", credential.CauseStaleEpoch, func(r *rig, w *workload) []byte {
			w.edit(func(rec *record) { rec.Epoch = 1 })
			return w.lines[0][0]
		}, nil},
		{"an epoch of no start", causeEpochRange, func(r *rig, w *workload) []byte {
			c := claim(r, w)
			c.Epoch = 9
			return issue(r, c)
		}, nil},
		{"a rank out of range", credential.CauseRankRange, func(r *rig, w *workload) []byte {
			c := claim(r, w)
			c.Rank = 2
			return issue(r, c)
		}, nil},
		{"an unknown allocation", credential.CauseUnknownAllocation, func(r *rig, w *workload) []byte {
			c := claim(r, w)
			c.Allocation = "alloc_ffffffffffff"
			return issue(r, c)
		}, nil},
		{"a cancelled workload", causeFenced, func(r *rig, w *workload) []byte {
			w.edit(func(rec *record) { rec.Cancel = "user" })
			return w.lines[0][0]
		}, nil},
		{"another job", credential.CauseOtherJob, func(r *rig, w *workload) []byte {
			w.edit(func(rec *record) { rec.bind(rec.current(), "7") })
			return w.lines[0][0]
		}, agentOf("8", "x")},
		{"a resume of a rank that never came", credential.CauseResume, func(r *rig, w *workload) []byte {
			c := claim(r, w)
			c.Nonce = credential.ResumeNonce(1)
			return issue(r, c)
		}, agentOf("7", "x")},
		{"presented twice, without an attempt", credential.CauseReplayed, func(r *rig, w *workload) []byte {
			r.dial().hello(w.lines[0][0], nil).admitted()
			return w.lines[0][0]
		}, nil},
		{"presented again by another attempt", credential.CauseAttempt, func(r *rig, w *workload) []byte {
			r.dial().hello(w.lines[0][0], agentOf("7", "one")).admitted()
			return w.lines[0][0]
		}, agentOf("7", "two")},
		{"presented again once it was used", credential.CauseUsed, func(r *rig, w *workload) []byte {
			c := r.dial().hello(w.lines[0][0], agentOf("7", "one"))
			c.admitted()
			c.send(wire.Status, wire.StatusReport{Seq: 1, State: "started"})
			c.until(wire.Ack, new(wire.AckOrder)) // a byte came after the answer
			return w.lines[0][0]
		}, agentOf("7", "one")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t).serve()
			w := r.create(2, func(c *createBody) { c.Request.Restarts = 2 })
			line := tt.line(r, w)
			c := r.dial().hello(line, tt.agent)
			assert.Equal(t, refused, c.line())
			assert.Error(t, c.ended())
			var causes []any
			r.eventually("a refusal", func() bool {
				causes = nil
				for _, d := range r.dialIns() {
					if d["verdict"] == "refused" {
						causes = append(causes, d["cause"])
					}
				}
				return len(causes) > 0
			})
			assert.Equal(t, []any{tt.cause}, causes)
			h := r.server.counters.snapshot(r.server.slots)
			assert.Equal(t, map[string]uint64{tt.cause: 1}, h.Rejected)
			r.noSlotTaken() // the answer may be here first
		})
	}
}

func TestTooLongLineIsCutOff(t *testing.T) {
	r := newRig(t).serve()
	c := r.dial().say(bytes.Repeat([]byte("x"), wire.MaxHello+4096))
	if answer := c.line(); answer != "" { // what it never read makes the kernel reset the connection
		assert.Equal(t, refused, answer)
	}
	verdict, cause := r.lastDialIn(1)
	assert.Equal(t, "refused", verdict)
	assert.Equal(t, credential.CauseMalformed, cause)
}

func TestAccepted(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(2)
	c, answer := r.join(w, 0, 1, "7")
	assert.Regexp(t, `^kernel:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, answer.Generation)
	assert.Contains(t, answer.Resume, `"nonce": "resume.1.`)
	verdict, cause := r.lastDialIn(1)
	assert.Equal(t, "accepted", verdict)
	assert.Empty(t, cause)
	rec := r.dialIns()[0]
	assert.Equal(t, string(w.rec.current().ID), rec["allocation"])
	assert.EqualValues(t, 1, rec["rank"])
	assert.Equal(t, answer.Generation, rec["generation"])
	r.eventually("registered", func() bool { return w.view().Ranks.Live == 1 })
	assert.Equal(t, "1 of 2 ranks; missing 0", w.view().Ranks.Text)
	assert.Equal(t, uint64(1), r.server.counters.accepted.Load())
	r.noSlotTaken()
	c.conn.Close()
	r.eventually("missing again", func() bool { return w.view().Ranks.Live == 0 })
}

// No audit record holds what the credential's holder alone may know.
func TestAuditHoldsNoSecret(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(1)
	_, answer := r.join(w, 0, 0, "7")
	r.dial().hello(w.lines[0][0], nil).line()
	r.lastDialIn(2)
	text := r.auditText()
	require.Contains(t, text, answer.Generation, "the search finds what is there")
	for _, line := range [][]byte{w.lines[0][0], []byte(answer.Resume)} {
		var c struct{ Nonce, Signature string }
		decodeJSON(t, line, &c)
		assert.NotContains(t, text, c.Nonce)
		assert.NotContains(t, text, c.Signature)
	}
	assert.NotContains(t, text, "hunter2")
	digest := sha256.Sum256([]byte("a"))
	assert.NotContains(t, text, fmt.Sprintf("%x", digest))
}

func TestEarlyEnds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      func(r *rig) *client
		verdict string
		timeout bool
	}{
		{"closes at once", func(r *rig) *client { c := r.plainTCP(); c.conn.Close(); return c }, "closed", false},
		{"closes after TLS", func(r *rig) *client { c := r.dial(); c.conn.Close(); return c }, "closed", false},
		{"closes in the middle of its line", func(r *rig) *client { c := r.dial().say([]byte(`{"alloc`)); c.conn.Close(); return c }, "closed", false},
		{"says nothing", func(r *rig) *client { return r.plainTCP() }, "timeout", true},
		{"stalls after TLS", func(r *rig) *client { return r.dial() }, "timeout", true},
		{"stalls in the middle of its line", func(r *rig) *client { return r.dial().say([]byte(`{"alloc`)) }, "timeout", true},
		{"stalls in the middle of TLS", func(r *rig) *client { return r.plainTCP().say([]byte{0x16, 3, 1, 2}) }, "timeout", true},
		{"speaks no TLS", func(r *rig) *client { return r.plainTCP().say([]byte("hello\n")) }, "unanswered", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, func(c *Config) {
				if tt.timeout {
					c.Handshake = 2 * time.Second
				}
			}).serve()
			c := tt.do(r)
			verdict, _ := r.lastDialIn(1)
			assert.Equal(t, tt.verdict, verdict)
			h := r.server.counters.snapshot(r.server.slots)
			assert.Equal(t, tt.timeout, h.TimedOut == 1)
			assert.Empty(t, h.Rejected)
			r.noSlotTaken()
			c.conn.Close()
		})
	}
}

func TestBytesAfterTheHelloAreKept(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(1)
	h, err := wire.AppendHello(w.lines[0][0], *agentOf("7", "a"))
	require.NoError(t, err)
	c := r.dial().say(wire.Frame{Type: wire.Stdout, Payload: []byte("early\n")}.Append(h))
	c.admitted()
	r.eventually("the early output", func() bool { out, _ := w.logs.read(0, 0); return string(out) == "early\n" })
}

func TestUnhealthyFenceAnswersNobody(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(1)
	require.NoError(t, r.db.Close())
	c := r.dial().hello(w.lines[0][0], agentOf("7", "a"))
	assert.Empty(t, c.line(), "no verdict: the agent is to try again")
	verdict, _ := r.lastDialIn(1)
	assert.Equal(t, "unanswered", verdict)
	assert.Error(t, r.server.fence.Healthy())
}

func TestNamesOfPeersAreNeutralised(t *testing.T) {
	r := newRig(t).serve()
	w := r.create(1)
	a := agentOf("7", "a")
	a.Host = "n1\x1b[31m\n\"x"
	r.dial().hello(w.lines[0][0], a).admitted()
	r.lastDialIn(1)
	assert.Equal(t, `n1?[31m "x`, r.dialIns()[0]["host"])
	r.eventually("registered", func() bool { return w.view().Ranks.Live == 1 })
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.Equal(t, `n1?[31m "x`, w.gang.Member(0).Host)
}

func TestIPv6(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 loopback: %v", err)
	}
	r := newRig(t)
	r.addr = ln.Addr().String()
	r.serveOn(ln)
	w := r.create(1)
	r.join(w, 0, 0, "7")
	r.lastDialIn(1)
	assert.Contains(t, r.dialIns()[0]["source"], "[::1]:")
}
