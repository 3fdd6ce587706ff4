//go:build live

package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/internal/munge"
	"github.com/openai4s/hpc/tests/cluster"
)

// The same as in attest_test.go with real MUNGE. It runs as root, so that it can be another user too.
func TestRealMungeAttests(t *testing.T) {
	m := cluster.Munge(t)
	dir := t.TempDir()
	mine, unmunge := cluster.MungeCommands(t, dir, m.Socket)
	r := newRig(t, func(c *Config) { c.Attest, c.Unmunge, c.Handshake = AttestMunge, unmunge, time.Minute }).serve()
	w := r.create(4)
	n := 0
	refused := func(c *client, why string) {
		t.Helper()
		n++
		r.refusedAttest(c, n, why)
	}
	admitted := func(c *client) {
		t.Helper()
		c.admitted()
		n++
		r.lastDialIn(n)
	}
	line := func(rank int) []byte { return w.lines[0][rank] }

	t.Run("another uid, and then the owner", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("needs root, to be another user")
		}
		theirs := script(t, fmt.Sprintf("exec setpriv --reuid=%d --regid=%d --clear-groups munge --socket=%s \"$@\"", bob, bob, m.Socket))
		c := r.dial()
		c.attested(line(0), agentOf("666", "thief"), theirs)
		n++
		assert.Equal(t, wire.Refused, c.line())
		verdict, cause := r.lastDialIn(n)
		assert.Equal(t, []string{"refused", "attest"}, []string{verdict, cause})
		assert.Regexp(t, fmt.Sprintf("^uid %d of [0-9a-f.:]+$", bob), r.dialIns()[n-1]["attest"])
	})
	admitted(r.dial().attested(line(0), agentOf("7", "a"), mine))

	t.Run("missing", func(t *testing.T) {
		refused(r.dial().hello(line(1), agentOf("7", "b")), "missing")
		refused(r.dial().hello(line(1), nil), "missing")
	})
	t.Run("replayed", func(t *testing.T) {
		first := r.dial()
		a := agentOf("7", "b")
		a.Attest = first.attestation(line(1), mine)
		admitted(first.hello(line(1), a))
		refused(r.dial().hello(line(2), a), "replayed")
		refused(r.dial().hello(line(1), a), "replayed")
	})
	t.Run("made for another connection", func(t *testing.T) {
		a := agentOf("7", "c")
		a.Attest = r.dial().attestation(line(2), mine)
		refused(r.dial().hello(line(2), a), "made for another connection")
	})
	for name, tt := range map[string]struct{ command, why string }{
		"of another cluster's key": {foreign(t), "invalid"},
		"for another's eyes":       {script(t, "exec "+mine+fmt.Sprintf(" --restrict-uid=%d \"$@\"", bob)), "invalid"},
		"cut":                      {script(t, mine+` "$@" | sed 's/....:$/:/'`), "invalid"},
		"with something behind it": {script(t, mine+` --ttl=60 --string="$(cat)x"`), "made for another connection"},
		"lives long":               {script(t, mine+" --ttl=300"), "lives too long"},
		"expired":                  {script(t, mine+` --ttl=1 >`+dir+`/old; sleep 3; cat `+dir+`/old`), "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(r.dial().attested(line(2), agentOf("7", "c"), tt.command), tt.why)
		})
	}
	assert.Equal(t, 2, w.view().Ranks.Live)

	// Down, it refuses nobody; up again, the same credentials are good.
	made := munge.Max
	m.Stop(t)
	other := foreign(t)
	for range 3 {
		assert.Empty(t, r.dial().attested(line(2), agentOf("7", "c"), other).line())
		n++
		verdict, cause := r.lastDialIn(n)
		assert.Equal(t, "unanswered", verdict)
		assert.Contains(t, cause, "MUNGE on the gateway's host gives no answer")
		r.clock.advance(time.Second)
	}
	m.Start(t)
	for rank := 2; rank < 4; rank++ {
		c := r.dial()
		a := agentOf("7", fmt.Sprint(rank))
		a.Attest = c.attestation(line(rank), mine)
		made = min(made, len(a.Attest))
		admitted(c.hello(line(rank), a))
	}
	r.eventually("released", func() bool { return w.view().Phase == "ACTIVE" })
	assert.Less(t, made, 512, "far below what a hello may hold")
}

// No byte of an attestation is in an argument or in the environment of a process.
func TestNoAttestationInArguments(t *testing.T) {
	m := cluster.Munge(t)
	mine, unmunge := cluster.MungeCommands(t, t.TempDir(), m.Socket)
	args := filepath.Join(t.TempDir(), "args")
	spied := func(command string) string {
		return script(t, `echo "$0 $*" >>`+args+`; env >>`+args+`; exec `+command+` "$@"`)
	}
	r := newRig(t, func(c *Config) { c.Attest, c.Unmunge = AttestMunge, spied(unmunge) }).serve()
	w := r.create(1)
	r.dial().attested(w.lines[0][0], agentOf("7", "a"), spied(mine)).admitted()
	text, err := os.ReadFile(args)
	require.NoError(t, err)
	assert.Contains(t, string(text), "--ttl=60")
	assert.Contains(t, string(text), "--numeric")
	for _, secret := range []string{"MUNGE:", "openai4s-attest", "signature"} {
		assert.NotContains(t, string(text), secret)
	}
	assert.NotContains(t, strings.ToLower(r.auditText()), "munge:")
}
