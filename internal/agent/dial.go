package agent

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/openai4s/hpc/credential/bundle"
	"github.com/openai4s/hpc/gateway/wire"
)

// errRefused is the gateway's verdict; there is no use in trying again.
var errRefused = errors.New("the gateway refused this rank's credential")

const (
	// tryTimeout bounds one address's connection, TLS and answer: an address that swallows packets must not eat the
	// time of the others, and a busy gateway must have the time to answer.
	tryTimeout = 40 * time.Second
	// connectTimeout bounds the connection alone.
	connectTimeout = 8 * time.Second
	firstPause     = 100 * time.Millisecond
	longestPause   = 30 * time.Second
)

// dialer brings the rank to the gateway, again and again.
type dialer struct {
	head  bundle.Header
	wait  time.Duration // before the first try
	hello func(ctx context.Context, conn net.Conn) ([]byte, error)
}

// admitted is a connection whose credential was accepted.
type admitted struct {
	conn    net.Conn
	address string // the one that worked
	answer  wire.Answer
}

// dial tries the addresses in order until one admits the rank, the gateway refuses it, or ctx ends. Its error tells
// what each address answered last. A connection that was closed before an answer is "busy", not a refusal.
func (d *dialer) dial(ctx context.Context) (admitted, error) {
	pauses := &backoff.ExponentialBackOff{InitialInterval: firstPause, RandomizationFactor: 0.5, Multiplier: 1.7, MaxInterval: longestPause}
	pauses.Reset()
	said := map[string]string{}
	if !sleep(ctx, d.wait) {
		return admitted{}, d.gaveUp(ctx, said)
	}
	for {
		for _, address := range d.head.Addresses {
			a, err := d.try(ctx, address)
			if err == nil {
				return a, nil
			}
			if errors.Is(err, errRefused) {
				return admitted{}, fmt.Errorf("%w (at %s)", err, address)
			}
			if ctx.Err() == nil {
				said[address] = plainDialError(err)
			}
		}
		if !sleep(ctx, pauses.NextBackOff()) {
			return admitted{}, d.gaveUp(ctx, said)
		}
	}
}

// sleep waits; false: ctx ended first.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (d *dialer) gaveUp(ctx context.Context, said map[string]string) error {
	var b strings.Builder
	for i, address := range d.head.Addresses {
		if i > 0 {
			b.WriteString("; ")
		}
		text := said[address]
		if text == "" {
			text = "not tried to its end"
		}
		b.WriteString(address + ": " + text)
	}
	return fmt.Errorf("no gateway could be reached: %s: %w", b.String(), context.Cause(ctx))
}

// try makes one attempt at one address.
func (d *dialer) try(ctx context.Context, address string) (a admitted, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, fmt.Errorf("no answer within %s", tryTimeout))
	defer cancel()
	// No proxy is asked: the gateway is a machine of the cluster, and what a proxy variable names is not.
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return a, err
	}
	raw := conn
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer func() {
		if !stop() {
			err = context.Cause(ctx) // and not that its connection was closed
		}
		if err != nil {
			raw.Close()
		}
	}()
	if d.head.TLS == "on" {
		t := tls.Client(raw, pinned(d.head.Pins))
		if err := t.HandshakeContext(ctx); err != nil {
			return a, fmt.Errorf("TLS: %w", err)
		}
		conn = t
	}
	hello, err := d.hello(ctx, conn)
	if err != nil {
		return a, err
	}
	if _, err := conn.Write(hello); err != nil {
		return a, err
	}
	answer, err := wire.ReadAnswer(conn)
	if err != nil {
		return a, err
	}
	if !answer.OK {
		return a, errRefused
	}
	return admitted{conn: conn, address: address, answer: answer}, nil
}

// pinned trusts the key in the bundle and nothing else: no name, no authority, no date.
func pinned(pins []string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		CurvePreferences:   []tls.CurveID{tls.X25519},
		InsecureSkipVerify: true, // VerifyConnection below is the whole check
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("the peer showed no certificate")
			}
			spki, err := x509.MarshalPKIXPublicKey(s.PeerCertificates[0].PublicKey)
			if err != nil {
				return fmt.Errorf("reading the peer's key: %w", err)
			}
			sum := sha256.Sum256(spki)
			if !slices.Contains(pins, "sha256:"+hex.EncodeToString(sum[:])) {
				return errors.New("the peer's key is not the one pinned in the bundle: it is not this workload's gateway")
			}
			return nil
		},
	}
}

// plainDialError says what happened without the address, which stands beside it.
func plainDialError(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	text := err.Error()
	if text == "EOF" || text == "unexpected EOF" || strings.Contains(text, "connection reset") {
		return "busy: it closed the connection without an answer (" + text + ")"
	}
	return text
}
