package gateway

import (
	"bufio"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
)

// agentOf announces an agent of a job, with an attempt secret made of its name.
func agentOf(job, attempt string) *wire.Agent {
	pad := []byte(strings.Repeat("0", 64))
	copy(pad, hex.EncodeToString([]byte(attempt)))
	return &wire.Agent{Protocol: wire.Protocol, Version: "test", Attempt: string(pad), Job: job, Host: "n1", Address: "127.0.0.1", FreePort: 4711}
}

// client is the other end of one dial-in.
type client struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

// plainTCP connects without TLS.
func (r *rig) plainTCP() *client {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	require.NoError(r.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return &client{t: r.t, conn: c, in: bufio.NewReader(c)}
}

// dial connects and brings TLS up, unless it is off.
func (r *rig) dial() *client {
	r.t.Helper()
	c := r.plainTCP()
	if r.server.cfg.TLSMode == "off" {
		return c
	}
	t := tls.Client(c.conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	require.NoError(r.t, t.Handshake())
	return &client{t: r.t, conn: t, in: bufio.NewReader(t)}
}

// say writes raw bytes. A gateway that has closed already is not an error: what it answered is what counts.
func (c *client) say(b []byte) *client {
	c.t.Helper()
	_, _ = c.conn.Write(b)
	return c
}

// hello writes a credential, announced as an agent's unless a is nil.
func (c *client) hello(line []byte, a *wire.Agent) *client {
	c.t.Helper()
	if a == nil {
		return c.say(append(append([]byte{}, line...), '\n'))
	}
	h, err := wire.AppendHello(line, *a)
	require.NoError(c.t, err)
	return c.say(h)
}

// line reads what the gateway answers; "" where it closed without a word.
func (c *client) line() string {
	c.t.Helper()
	text, err := c.in.ReadString('\n')
	if err != nil && text != "" {
		c.t.Fatalf("half a line: %q", text)
	}
	return text
}

// admitted reads an answer that must be good.
func (c *client) admitted() wire.Answer {
	c.t.Helper()
	text := c.line()
	var a wire.Answer
	require.NoError(c.t, json.Unmarshal([]byte(text), &a), "answer %q", text)
	require.True(c.t, a.OK, "answer %q", text)
	return a
}

// ended tells whether the gateway has closed: it reads on until it has.
func (c *client) ended() error {
	for {
		if _, err := c.in.ReadByte(); err != nil {
			return err
		}
	}
}

func (c *client) frame() wire.Frame {
	c.t.Helper()
	f, err := wire.ReadFrame(c.in)
	require.NoError(c.t, err)
	return f
}

// until reads frames up to one of the type, and decodes it.
func (c *client) until(t wire.Type, into any) {
	c.t.Helper()
	for {
		f := c.frame()
		if f.Type == t {
			require.NoError(c.t, f.Decode(into))
			return
		}
	}
}

func (c *client) send(t wire.Type, payload any) {
	c.t.Helper()
	f, err := wire.JSON(t, payload)
	require.NoError(c.t, err)
	require.NoError(c.t, wire.WriteFrame(c.conn, f))
}

// exit reports the command's end and waits for the acknowledgement.
func (c *client) exit(e wire.ExitReport) {
	c.t.Helper()
	e.Seq = 2
	c.send(wire.Exit, e)
	var ack wire.AckOrder
	c.until(wire.Ack, &ack)
	require.Equal(c.t, uint64(2), ack.Seq)
}
