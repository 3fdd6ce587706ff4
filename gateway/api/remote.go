package api

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/openai4s/hpc/internal/munge"
)

// A control connection over TCP begins so: TLS 1.3 whose server key the client has pinned; one line with a MUNGE
// credential, whose payload is made of the connection's own keys; one line as answer, {"ok":true} or {"error":…}. HTTP
// follows, as on the socket.
//
// RemoteProtocol is the application protocol of these connections. The agents' listener, which has the same key,
// doesn't speak it.
const RemoteProtocol = "openai4s-control/1"

var (
	// ErrWrongKey is returned by DialRemote where the other end has none of the pinned keys.
	ErrWrongKey = errors.New("its key is none of those that the site file names")
	// ErrMunge is returned where this host makes no MUNGE credential. It is an ErrNobody too.
	ErrMunge = munge.ErrNone
)

// Remote is a gateway on another host.
type Remote struct {
	Address string   // host:port
	Pins    []string // "sha256:" + hex of the SubjectPublicKeyInfo, of the keys it may have
	Munge   string   // the command's path; "": munge of the PATH
}

const (
	// helloTimeout bounds everything from TLS to the answer.
	helloTimeout = 30 * time.Second
	// idleFor is how long an idle connection is kept; the gateway keeps it longer.
	idleFor = time.Minute
	// maxHelloAnswer bounds the answer's line.
	maxHelloAnswer = 16 << 10
)

// DialRemote connects to a gateway on another host and asks for Info.
func DialRemote(ctx context.Context, r Remote) (*Client, Info, error) {
	return dial(ctx, &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) },
		DisableCompression: true,
	})
}

// dial is one connection, up to the gateway's word that it knows the caller.
func (r Remote) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	raw, err := d.DialContext(ctx, "tcp", r.Address)
	if err != nil {
		return nil, err
	}
	conn, err := r.hello(ctx, raw)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

func (r Remote) hello(ctx context.Context, raw net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	conn := tls.Client(raw, r.config())
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("shaking hands: %w", err)
	}
	payload, err := RemotePayload(conn.ConnectionState())
	if err != nil {
		return nil, err
	}
	credential, err := munge.Make(ctx, r.Munge, payload)
	if errors.Is(err, ErrMunge) {
		return nil, fmt.Errorf("%w: %w", ErrNobody, err)
	}
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(credential, '\n')); err != nil {
		return nil, fmt.Errorf("saying who asks: %w", err)
	}
	// One byte past the line would be lost with this reader; the gateway sends none unasked.
	line, err := bufio.NewReader(io.LimitReader(conn, maxHelloAnswer)).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("reading whether the gateway knows the caller: %w", err)
	}
	var answer struct {
		OK    bool   `json:"ok"`
		Error *Error `json:"error"`
	}
	if err := json.Unmarshal(line, &answer); err != nil || !answer.OK {
		if answer.Error == nil {
			return nil, errors.New("reading whether the gateway knows the caller: what it answered can't be read")
		}
		answer.Error.Status = http.StatusForbidden
		if answer.Error.Code == "unavailable" { // for now: whoever waits goes on waiting
			answer.Error.Status = http.StatusServiceUnavailable
			return nil, fmt.Errorf("%w: %w", ErrNobody, answer.Error)
		}
		return nil, answer.Error
	}
	if !stop() {
		return nil, ctx.Err()
	}
	return conn, nil
}

// config verifies the key alone: names and dates of the certificate say nothing here.
func (r Remote) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection does it, by the key
		NextProtos:         []string{RemoteProtocol},
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !slices.Contains(r.Pins, KeyPin(s.PeerCertificates[0])) {
				return ErrWrongKey
			}
			if s.NegotiatedProtocol != RemoteProtocol {
				return fmt.Errorf("it doesn't speak %s", RemoteProtocol)
			}
			return nil
		},
	}
}

// KeyPin is a certificate's pin: "sha256:" and the hex digits of its SubjectPublicKeyInfo's hash.
func KeyPin(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// RemotePayload is what the MUNGE credential of a connection must hold. Both ends derive it from the connection's own
// keys, so a credential that was made for one connection is worth nothing on any other.
func RemotePayload(s tls.ConnectionState) ([]byte, error) {
	keys, err := s.ExportKeyingMaterial("EXPORTER-"+RemoteProtocol, nil, 32)
	if err != nil {
		return nil, fmt.Errorf("binding the credential to the connection: %w", err)
	}
	return []byte(RemoteProtocol + " " + hex.EncodeToString(keys)), nil
}
