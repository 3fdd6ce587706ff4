package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Protocol is what an agent announces to be spoken to in frames.
const Protocol = "openai4s/1"

// MaxHello bounds the hello line, newline included.
const MaxHello = 64 << 10

// Agent is what an agent of ours says of itself in the hello line, under the member "agent". None of it is signed:
// the credential beside it is what counts.
type Agent struct {
	Protocol  string `json:"protocol"`
	Version   string `json:"version"`
	Attempt   string `json:"attempt"` // 64 hex digits, random, the same for the life of the agent's process
	Job       string `json:"job"`     // the scheduler's id of the job that the agent runs in
	Host      string `json:"host"`    // the scheduler's name of the node
	Address   string `json:"address"` // local address of the connection, without port
	LocalRank int    `json:"local_rank"`
	NodeRank  int    `json:"node_rank"`
	FreePort  int    `json:"free_port"` // a TCP port that was free on the node
	// Attest is a MUNGE credential that says whose process this is: AttestPayload. Only where the bundle asks for it.
	Attest string `json:"attest,omitempty"`
}

// AttemptSecret decodes the attempt secret.
func (a Agent) AttemptSecret() ([32]byte, error) {
	var s [32]byte
	b, err := hex.DecodeString(a.Attempt)
	if err != nil || len(b) != len(s) {
		return s, fmt.Errorf("%w: the attempt is not 64 hex digits", ErrHello)
	}
	copy(s[:], b)
	return s, nil
}

// Hello is the line as it came, without its newline, and our own member of it. Package credential alone reads the rest.
type Hello struct {
	Line  []byte
	Agent *Agent // nil: the peer announced nothing and gets the bare socket
}

// ReadHello reads one line of at most MaxHello bytes. What followed it in the same read is returned as rest.
// A line whose "agent" can't be read is returned with ErrHello.
func ReadHello(r io.Reader) (h Hello, rest []byte, err error) {
	buf := make([]byte, 0, 1024)
	for {
		if len(buf) == cap(buf) {
			if cap(buf) >= MaxHello {
				return Hello{}, nil, ErrHelloTooLong
			}
			buf = append(make([]byte, 0, min(4*cap(buf), MaxHello)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		seen := len(buf)
		buf = buf[:seen+n]
		if i := bytes.IndexByte(buf[seen:], '\n'); i >= 0 {
			line := buf[:seen+i]
			h := Hello{Line: line}
			h.Agent, err = parseAgent(line)
			return h, buf[seen+i+1:], err
		}
		if err != nil {
			if err == io.EOF && len(buf) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return Hello{}, nil, err
		}
	}
}

func parseAgent(line []byte) (*Agent, error) {
	if !bytes.Contains(line, []byte(`"agent"`)) {
		return nil, nil
	}
	var h struct {
		Agent *Agent `json:"agent"`
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHello, err)
	}
	if h.Agent == nil {
		return nil, nil
	}
	if h.Agent.Protocol != Protocol {
		return nil, fmt.Errorf("%w: unknown protocol", ErrHello)
	}
	if _, err := h.Agent.AttemptSecret(); err != nil {
		return nil, err
	}
	const maxName = 1 << 10
	if len(h.Agent.Job) > maxName || len(h.Agent.Host) > maxName || len(h.Agent.Address) > maxName || len(h.Agent.Version) > maxName {
		return nil, fmt.Errorf("%w: a name is over %d bytes", ErrHello, maxName)
	}
	if len(h.Agent.Attest) > MaxAttest {
		return nil, fmt.Errorf("%w: an attestation of over %d bytes", ErrHello, MaxAttest)
	}
	return h.Agent, nil
}

// AppendHello adds an agent's announcement to a credential line (one JSON object) and ends it with a newline.
func AppendHello(credential []byte, a Agent) ([]byte, error) {
	c := trimmed(credential)
	if len(c) < 2 || c[0] != '{' || c[len(c)-1] != '}' || !jsontext.Value(c).IsValid() {
		return nil, fmt.Errorf("%w: the credential is not one JSON object", ErrHello)
	}
	m, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("writing hello: %w", err)
	}
	out := make([]byte, 0, len(c)+len(m)+16)
	out = append(out, c[:len(c)-1]...)
	out = append(out, agentMember...)
	out = append(out, m...)
	out = append(out, "}\n"...)
	if len(out) > MaxHello {
		return nil, ErrHelloTooLong
	}
	return out, nil
}
