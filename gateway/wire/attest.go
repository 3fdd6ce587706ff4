package wire

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"slices"
)

// MaxAttest bounds the attestation in a hello.
const MaxAttest = 4 << 10

// attestation begins the payload of an attestation and names its exporter. Control over TCP has another name, so that
// a credential made for the one is worth nothing at the other.
const attestation = "openai4s-attest-v1"

// agentMember is where an agent's announcement begins in a hello that AppendHello made.
const agentMember = `, "agent": `

// AttestPayload is what the MUNGE credential in a hello must hold. Both ends derive it from the connection's own keys
// and from the rank's credential, so it is worth nothing on another connection or beside another credential.
func AttestPayload(s tls.ConnectionState, credential []byte) ([]byte, error) {
	sum := sha256.Sum256(trimmed(credential))
	keys, err := s.ExportKeyingMaterial("EXPORTER-"+attestation, sum[:], 32)
	if err != nil {
		return nil, fmt.Errorf("binding the attestation to the connection: %w", err)
	}
	return []byte(attestation + " " + hex.EncodeToString(keys)), nil
}

// Credential is the rank's credential line as AppendHello was given it. Of a hello that somebody else wrote it is
// anything, and nothing was ever attested of that.
func (h Hello) Credential() []byte {
	before, _, found := bytes.Cut(h.Line, []byte(agentMember))
	if !found {
		return h.Line
	}
	return slices.Concat(before, []byte("}"))
}

// trimmed is a credential's line without the blanks around its end.
func trimmed(line []byte) []byte { return bytes.TrimRight(line, " \t\r\n") }
