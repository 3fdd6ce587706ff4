package agent

import (
	"crypto/tls"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/credential/bundle"
	"github.com/openai4s/hpc/gateway/wire"
)

// attesting is a gateway whose bundle asks for attestations by a munge of the test's.
func attesting(t *testing.T, text string) *fake {
	t.Helper()
	f := newFake(t, 1)
	f.head.Attest, f.head.Munge = bundle.AttestMunge, filepath.Join(t.TempDir(), "munge")
	require.NoError(t, os.WriteFile(f.head.Munge, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	f.write()
	return f
}

// The first hello carries what MUNGE says of this connection and this credential; a resumed one carries nothing.
func TestAgentAttests(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	f := attesting(t, `echo "$*" >>`+seen+`; env >>`+seen+`; echo "MUNGE:$(base64 | tr -d '\n'):"`)
	a := f.agent(0)
	p := f.joined()
	require.NotNil(t, p.hello.Agent)
	text := strings.TrimSuffix(strings.TrimPrefix(p.hello.Agent.Attest, "MUNGE:"), ":")
	payload, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	want, err := wire.AttestPayload(p.conn.(*tls.Conn).ConnectionState(), []byte(`{"rank": 0, "nonce": "first"}`))
	require.NoError(t, err)
	assert.Equal(t, string(want), string(payload))
	args, err := os.ReadFile(seen)
	require.NoError(t, err)
	assert.NotContains(t, string(args), string(want))
	assert.NotContains(t, string(args), `"first"`)

	p.ready()
	o := f.order("sh", "-c", "mkfifo go && touch waits && read -r x <go")
	p.order(wire.Start, o)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(o.Workdir, "waits")); return err == nil }, 20*time.Second, 5*time.Millisecond)
	p.conn.Close()
	p = f.joined()
	assert.Contains(t, string(p.hello.Line), "resume")
	assert.Empty(t, p.hello.Agent.Attest)
	require.NoError(t, os.WriteFile(filepath.Join(o.Workdir, "go"), []byte("x\n"), 0))
	e := p.exit()
	assert.Equal(t, wire.ExitReport{Seq: seqExit}, e)
	p.finish(e, wire.StopOrder{ExitCode: e.Code})
	a.code()
}

// MUNGE that comes up late is waited for, and what is waited for is said.
func TestAgentWaitsForMunge(t *testing.T) {
	up := filepath.Join(t.TempDir(), "up")
	f := attesting(t, `[ -e `+up+` ] || { echo 'Failed to access socket (Did you start munged?)' >&2; exit 6; }; cat >/dev/null; echo MUNGE:YQ==:`)
	a := f.agent(0)
	require.Eventually(t, func() bool { return strings.Contains(a.err.String(), "Did you start munged?") }, 20*time.Second, 5*time.Millisecond)
	assert.Contains(t, a.err.String(), "trying again for 20s. MUNGE must run on every compute node")
	require.NoError(t, os.WriteFile(up, nil, 0o600))
	assert.Equal(t, "MUNGE:YQ==:", f.joined().hello.Agent.Attest)
	assert.Equal(t, 1, strings.Count(a.err.String(), "Did you start munged?"), "said once")
	a.signal(15)
	a.code()
}

func TestAgentWithoutMunge(t *testing.T) {
	t.Run("it stays down", func(t *testing.T) {
		f := attesting(t, "echo no socket >&2; exit 6")
		f.head.DialTimeout = "1s"
		f.write()
		a := f.agent(0)
		assert.Equal(t, exitBootstrap, a.code())
		assert.Contains(t, a.err.String(), f.ln.Addr().String()+": this host's MUNGE makes no credential: "+f.head.Munge+": exit status 6: no socket; MUNGE must run")
	})
	for name, text := range map[string]string{"/no/such/munge": "stat /no/such/munge", "": `"munge": executable file not found in $PATH`} {
		t.Run("no command "+name, func(t *testing.T) {
			f := attesting(t, "")
			f.head.Munge = name
			f.write()
			a := f.agent(0, "PATH=/no/such/folder")
			assert.Equal(t, exitBootstrap, a.code())
			assert.Contains(t, a.err.String(), "this node can't: exec: ")
			assert.Contains(t, a.err.String(), text)
			assert.Contains(t, a.err.String(), "commands in site.toml must name where munge is")
			assert.Empty(t, f.joins, "the gateway isn't troubled")
		})
	}
}
