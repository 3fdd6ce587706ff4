package wire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ends are both ends' states of a new TLS connection.
func ends(t *testing.T) (client, server tls.ConnectionState) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	near, far := net.Pipe()
	s := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, SessionTicketsDisabled: true})
	over := make(chan error, 1)
	go func() { over <- s.Handshake() }()
	c := tls.Client(near, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, c.Handshake())
	require.NoError(t, <-over)
	client, server = c.ConnectionState(), s.ConnectionState()
	near.Close()
	far.Close()
	return client, server
}

func TestAttestPayload(t *testing.T) {
	client, server := ends(t)
	other, _ := ends(t)
	payload := func(s tls.ConnectionState, line string) string {
		p, err := AttestPayload(s, []byte(line))
		require.NoError(t, err)
		return string(p)
	}
	line := payload(client, credentialLine)
	assert.Regexp(t, "^openai4s-attest-v1 [0-9a-f]{64}$", line)
	assert.Equal(t, line, payload(server, credentialLine), "both ends have the same")
	assert.Equal(t, line, payload(server, credentialLine+" \r\n"))
	assert.NotEqual(t, line, payload(other, credentialLine), "another connection")
	assert.NotEqual(t, line, payload(server, strings.Replace(credentialLine, `"rank": 0`, `"rank": 1`, 1)), "another rank")
}

// The gateway finds the line in a hello that the agent attested.
func TestCredentialOfAHello(t *testing.T) {
	a := announced
	a.Attest = "MUNGE:YQ==:"
	hello, err := AppendHello([]byte(credentialLine+" \n"), a)
	require.NoError(t, err)
	h, _, err := ReadHello(bytes.NewReader(hello))
	require.NoError(t, err)
	assert.Equal(t, credentialLine, string(h.Credential()))
	assert.Equal(t, strings.TrimSuffix(string(hello), "\n"), string(h.Line), "the line is left as it was")
	assert.Equal(t, "MUNGE:YQ==:", h.Agent.Attest)
	assert.Equal(t, credentialLine, string(Hello{Line: []byte(credentialLine)}.Credential()), "nothing was announced")
}

// Agents that attest nothing say what they always said.
func TestNoAttestationIsNoMember(t *testing.T) {
	hello, err := AppendHello([]byte(credentialLine), announced)
	require.NoError(t, err)
	assert.NotContains(t, string(hello), "attest\"")
}
