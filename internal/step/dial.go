package step

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// connection is an established way to a store: bytes written to wire reach it.
type connection struct {
	*link
	wire      net.Conn // link, or TLS upon it
	proxyAuth string   // Proxy-Authorization for a request in absolute form
	viaProxy  bool     // the request must be in absolute form
}

// dial reaches u. Name lookup, every address, the proxy and TLS share one deadline (section 15).
func (c *client) dial(ctx context.Context, u *url.URL) (*connection, error) {
	proxy, err := c.proxies.forURL(u)
	if err != nil {
		return nil, err
	}
	first := u
	if proxy != nil {
		first = proxy
	}
	establishBy := time.Now().Add(c.establish)
	dialCtx, cancel := context.WithDeadline(ctx, establishBy)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(dialCtx, "tcp", hostPort(first))
	if err != nil {
		return nil, c.unreachable(ctx, dialCtx, first, err)
	}
	conn := &connection{link: newLink(ctx, raw, establishBy)}
	if err := c.establishOver(dialCtx, conn, u, proxy); err != nil {
		_ = conn.Close()
		return nil, c.unreachable(ctx, dialCtx, u, err)
	}
	if err := stopped(ctx); err != nil { // section 14: right after a connection is made
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func (c *client) establishOver(ctx context.Context, conn *connection, u, proxy *url.URL) error {
	conn.wire = conn.link
	if proxy != nil && proxy.Scheme == "https" {
		if err := conn.encrypt(ctx, proxy.Hostname()); err != nil {
			return err
		}
	}
	if proxy != nil {
		conn.proxyAuth = basicAuth(proxy)
	}
	if u.Scheme == "http" {
		conn.viaProxy = proxy != nil
		return nil
	}
	if proxy != nil {
		if err := connect(conn, hostPort(u)); err != nil {
			return err
		}
	}
	return conn.encrypt(ctx, u.Hostname())
}

func (c *connection) encrypt(ctx context.Context, name string) error {
	t := tls.Client(c.wire, &tls.Config{ServerName: name, NextProtos: []string{"http/1.1"}})
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	c.wire = t
	return nil
}

// connect asks the proxy for a tunnel to target.
func connect(conn *connection, target string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target,
		Header: http.Header{"User-Agent": {userAgent}}}
	if conn.proxyAuth != "" {
		req.Header.Set("Proxy-Authorization", conn.proxyAuth)
	}
	if err := req.Write(conn.wire); err != nil {
		return err
	}
	// Read byte by byte: what follows the answer belongs to TLS. One byte a read is slow for some hundred bytes only.
	resp, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn.wire}, 16), req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the proxy refused a tunnel with %d", resp.StatusCode)
	}
	return nil
}

// oneByte never reads ahead.
type oneByte struct{ net.Conn }

func (o oneByte) Read(p []byte) (int, error) { return o.Conn.Read(p[:min(1, len(p))]) }

func basicAuth(u *url.URL) string {
	if u.User == nil {
		return ""
	}
	password, _ := u.User.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func (c *client) unreachable(ctx, dialCtx context.Context, u *url.URL, err error) error {
	if stop := stopped(ctx); stop != nil {
		return stop
	}
	if dialCtx.Err() != nil || timedOut(err) {
		return transientf("no connection to %s within %s", u.Host, c.establish)
	}
	return transientf("no connection to %s: %s", u.Host, networkReason(err))
}

// networkReason says why without the addresses and URLs that library errors quote.
func networkReason(err error) string {
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "name not found"
	case errors.As(err, &dns):
		return "name lookup failed"
	case errors.As(err, &errno):
		return errno.Error()
	case timedOut(err):
		return "timed out"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return cut(printable(err.Error()), 200)
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
