package gateway

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/internal/munge"
)

// notary stands for a cluster's MUNGE: whoever asks is who they say, no credential is good twice, and it can be down.
// The real one is in attest_live_test.go.
type notary struct {
	t       testing.TB
	down    string // a file: it is down while that is there
	unmunge string
}

func newNotary(t testing.TB) *notary {
	dir := t.TempDir()
	n := &notary{t: t, down: filepath.Join(dir, "down")}
	n.unmunge = script(t, `[ -e `+n.down+` ] && { echo 'Did you start munged?' >&2; exit 6; }
read -r line
grep -qxF "$line" `+dir+`/seen 2>/dev/null && exit 17
echo "$line" >>`+dir+`/seen
text=$(echo "$line" | sed 's/^MUNGE://;s/:$//' | base64 --decode) || exit 14
uid=${text%% *} payload=${text#* }
printf 'STATUS:          0\nENCODE_HOST:     n1\nTTL:             60\nUID:             %s\nGID:             7\nLENGTH:          %d\n\n%s' "$uid" "${#payload}" "$payload"`)
	return n
}

// as is the munge command of a user.
func (n *notary) as(uid int) string {
	return script(n.t, fmt.Sprintf(`echo "MUNGE:$({ printf '%d '; cat; } | base64 | tr -d '\n'):"`, uid))
}

// attesting is a gateway whose ranks must attest, and its MUNGE.
func attesting(t testing.TB, edit ...func(*Config)) (*rig, *notary) {
	n := newNotary(t)
	// Refusals are answered with a growing delay, in which other connections of a test wait.
	on := func(c *Config) { c.Attest, c.Unmunge, c.Handshake = AttestMunge, n.unmunge, 30*time.Second }
	return newRig(t, append([]func(*Config){on}, edit...)...).serve(), n
}

// attestation is what a munge command makes of a connection and a credential's line.
func (c *client) attestation(line []byte, command string) string {
	c.t.Helper()
	payload, err := wire.AttestPayload(c.conn.(*tls.Conn).ConnectionState(), line)
	require.NoError(c.t, err)
	made, err := munge.Make(c.t.Context(), command, payload)
	require.NoError(c.t, err)
	return string(made)
}

// attested says hello with an attestation of this connection.
func (c *client) attested(line []byte, a *wire.Agent, command string) *client {
	c.t.Helper()
	a.Attest = c.attestation(line, command)
	return c.hello(line, a)
}

// refusedAttest is the n-th dial-in, which must have been refused for that reason with the text that every refusal has.
func (r *rig) refusedAttest(c *client, n int, why string) {
	r.t.Helper()
	assert.Equal(r.t, wire.Refused, c.line())
	verdict, cause := r.lastDialIn(n)
	assert.Equal(r.t, []string{"refused", "attest"}, []string{verdict, cause})
	assert.Equal(r.t, why, r.dialIns()[n-1]["attest"])
	r.clock.advance(time.Second) // more of them in one second would be summed up
}
