//go:build live

package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/tests/cluster"
)

// The same as in remote_test.go with real MUNGE.
func TestRealMunge(t *testing.T) {
	m := cluster.Munge(t)
	munge, unmunge := cluster.MungeCommands(t, t.TempDir(), m.Socket)
	r := newRig(t).serve()
	to := r.remote(unmunge)
	n := 0
	last := func() string {
		n++
		verdict, cause := r.awaitCaller(n)
		r.clock.advance(time.Second) // more of them in one second would be summed up
		return strings.TrimSpace(verdict + " " + cause)
	}

	to.Munge = munge
	c, _, err := api.DialRemote(t.Context(), to)
	require.NoError(t, err)
	made, err := c.Create(t.Context(), request(2))
	require.NoError(t, err)
	assert.Equal(t, os.Getuid(), made.Workload.UID)
	assert.Equal(t, "accepted", last())
	c.Close()

	// A credential that its maker presented, and one that nobody did yet: neither works on another connection.
	captured := filepath.Join(t.TempDir(), "credential")
	spy := to
	spy.Munge = script(t, munge+` "$@" | tee `+captured)
	c, _, err = api.DialRemote(t.Context(), spy)
	require.NoError(t, err)
	c.Close()
	assert.Equal(t, "accepted", last())
	thief := to
	thief.Munge = script(t, "cat >/dev/null; cat "+captured)
	_, _, err = api.DialRemote(t.Context(), thief)
	require.ErrorContains(t, err, "replayed")
	assert.Equal(t, "refused replayed", last())
	spy.Munge = script(t, munge+` "$@" >`+captured+`; exit 1`)
	_, _, err = api.DialRemote(t.Context(), spy)
	require.ErrorIs(t, err, api.ErrMunge)
	last()
	_, _, err = api.DialRemote(t.Context(), thief)
	require.ErrorContains(t, err, "made for another connection")
	assert.Equal(t, "refused made for another connection", last())

	// Credentials that are the user's and not of this kind.
	for name, tt := range map[string]struct{ munge, cause string }{
		"lives long":                {munge + " --ttl=300", "lives too long"},
		"for another's eyes":        {munge + " --ttl=60 --restrict-uid=" + fmt.Sprint(bob), "invalid"},
		"of another cluster's key":  {foreign(t) + " --ttl=60", "invalid"},
		"without a payload":         {munge + " --ttl=60 --no-input", "made for another connection"},
		"with something behind it":  {munge + ` --ttl=60 --string="$(cat)x"`, "made for another connection"},
		"cut":                       {munge + ` "$@" | sed 's/....:$/:/'`, "invalid"},
		"for whom it says it isn't": {munge + ` --ttl=60 --string="$(cat) UID: 0"`, "made for another connection"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := to
			bad.Munge = script(t, tt.munge)
			_, _, err := api.DialRemote(t.Context(), bad)
			var e *api.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, "not_allowed", e.Code)
			assert.Equal(t, "refused "+tt.cause, last())
		})
	}
	assert.Equal(t, 1, r.server.LiveCount())

	// A credential that is too old. MUNGE counts whole seconds, the exporter's value is the connection's own.
	t.Run("expired", func(t *testing.T) {
		slow := to
		slow.Munge = script(t, munge+" --ttl=1 >"+captured+"; sleep 3; cat "+captured)
		_, _, err := api.DialRemote(t.Context(), slow)
		require.ErrorContains(t, err, "expired")
		assert.Equal(t, "refused expired", last())
	})

	m.Stop(t)
	_, _, err = api.DialRemote(t.Context(), to)
	require.ErrorIs(t, err, api.ErrMunge)
	assert.Contains(t, err.Error(), "Did you start munged?")
	last()
	// The caller's host has a MUNGE and the gateway's has none.
	other := to
	other.Munge = foreign(t)
	_, _, err = api.DialRemote(t.Context(), other)
	require.ErrorIs(t, err, api.ErrNobody)
	assert.Contains(t, err.Error(), "MUNGE on the gateway's host gives no answer")
	assert.Contains(t, last(), "unavailable")
	m.Start(t)
	c, _, err = api.DialRemote(t.Context(), to)
	require.NoError(t, err, "it comes back by itself")
	c.Close()
}

// foreign is the munge of another munged, with another key.
func foreign(t *testing.T) string {
	t.Helper()
	munge, _ := cluster.MungeCommands(t, t.TempDir(), cluster.Munge(t).Socket)
	return munge
}

// The real programs end with the codes that verdictOf knows.
func TestRealMungeCodes(t *testing.T) {
	m := cluster.Munge(t)
	munge, unmunge := cluster.MungeCommands(t, t.TempDir(), m.Socket)
	code := func(credential string) int {
		cmd := exec.Command(unmunge)
		cmd.Stdin = strings.NewReader(credential)
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode()
	}
	good, err := exec.Command(munge, "--string=x").Output()
	require.NoError(t, err)
	assert.Equal(t, 0, code(string(good)))
	assert.Equal(t, mungeReplayed, code(string(good)))
	assert.GreaterOrEqual(t, code("MUNGE:AwQDAAA=:"), mungeBadFirst)
	m.Stop(t)
	assert.Less(t, code(string(good)), mungeBadFirst)
	assert.NotEqual(t, mungeBadLength, code(string(good)))
}

// The credential's bytes are in no argument of a process: munge gets the payload through a pipe, and so does unmunge.
func TestNoCredentialInArguments(t *testing.T) {
	m := cluster.Munge(t)
	munge, unmunge := cluster.MungeCommands(t, t.TempDir(), m.Socket)
	r := newRig(t).serve()
	args := filepath.Join(t.TempDir(), "args")
	to := r.remote(script(t, `echo "$0 $*" >>`+args+`; env >>`+args+`; exec `+unmunge+` "$@"`))
	to.Munge = script(t, `echo "$0 $*" >>`+args+`; env >>`+args+`; exec `+munge+` "$@"`)
	c, _, err := api.DialRemote(t.Context(), to)
	require.NoError(t, err)
	c.Close()
	text, err := os.ReadFile(args)
	require.NoError(t, err)
	assert.Contains(t, string(text), "--ttl=60")
	assert.Contains(t, string(text), "--numeric")
	assert.NotContains(t, string(text), "MUNGE:")
	assert.NotContains(t, string(text), api.RemoteProtocol)
}

// Two connections have two payloads, and both ends of one have the same.
func TestPayloadIsTheConnections(t *testing.T) {
	m := cluster.Munge(t)
	munge, unmunge := cluster.MungeCommands(t, t.TempDir(), m.Socket)
	r := newRig(t).serve()
	to := r.remote(unmunge)
	one, two := r.rawRemote(to, api.RemoteProtocol), r.rawRemote(to, api.RemoteProtocol)
	payload := func(c *tls.Conn) string {
		p, err := api.RemotePayload(c.ConnectionState())
		require.NoError(t, err)
		return string(p)
	}
	require.NotEqual(t, payload(one), payload(two))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	say := func(c *tls.Conn, payload string) string {
		cmd := exec.CommandContext(ctx, munge, "--ttl=60")
		cmd.Stdin = strings.NewReader(payload)
		credential, err := cmd.Output()
		require.NoError(t, err)
		_, err = c.Write(credential)
		require.NoError(t, err)
		b := make([]byte, 200)
		n, _ := io.ReadAtLeast(c, b, 5)
		return string(b[:n])
	}
	assert.Contains(t, say(one, payload(two)), "another connection")
	assert.Contains(t, say(two, payload(two)), `"ok":true`)
}
