package step

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// client makes one request a connection and one connection at a time (section 15). It follows no redirect, keeps
// nothing alive, and every wait in it ends when its context does. The durations stand in fields so that the tests
// of this package needn't wait for them.
type client struct {
	proxies   proxies
	establish time.Duration
	read      time.Duration
	upload    time.Duration
}

func newClient(getenv func(string) string) *client {
	return &client{proxies: proxiesFrom(getenv), establish: establishTimeout, read: readSilence, upload: uploadSilence}
}

// get opens the body behind a signed URL. The caller closes it.
func (c *client) get(ctx context.Context, rawURL string) (io.ReadCloser, error) {
	u, err := storeURL(rawURL)
	if err != nil {
		return nil, err
	}
	req := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{"Accept": {"*/*"}}}
	conn, resp, err := c.exchange(ctx, req, c.read, c.read)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer conn.Close()
		return nil, refusal(conn, resp)
	}
	explain := func(err error) error { return unanswered(ctx, u.Host, c.read, err) }
	return &answerBody{conn: conn, body: resp.Body, explain: explain}, nil
}

// post sends a body of a known length. Its failure after the request began may be ambiguous: the object may be
// there all the same (section 7), so nobody repeats it.
func (c *client) post(ctx context.Context, rawURL, contentType string, body io.Reader, length int64, silence time.Duration) error {
	u, err := storeURL(rawURL)
	if err != nil {
		return err
	}
	req := &http.Request{Method: http.MethodPost, URL: u,
		Header:        http.Header{"Content-Type": {contentType}},
		Body:          io.NopCloser(body),
		ContentLength: length,
	}
	conn, resp, err := c.exchange(ctx, req, silence, c.upload)
	if err != nil {
		return err
	}
	defer conn.Close()
	if resp.StatusCode/100 != 2 {
		return refusal(conn, resp)
	}
	return nil
}

// exchange sends req and reads the head of its answer. read and write are the silences allowed. The caller closes
// the connection.
func (c *client) exchange(ctx context.Context, req *http.Request, read, write time.Duration) (*connection, *http.Response, error) {
	req.Header.Set("User-Agent", userAgent)
	conn, err := c.dial(ctx, req.URL)
	if err != nil {
		return nil, nil, err
	}
	conn.ready(read, write)
	if conn.proxyAuth != "" && conn.viaProxy {
		req.Header.Set("Proxy-Authorization", conn.proxyAuth)
	}
	sendErr := send(conn, req)
	if sendErr != nil {
		// A store that refuses an upload may answer and stop reading. Its answer is worth more than the broken pipe.
		conn.readWithin(refusalWait)
	}
	resp, err := readHead(conn, req)
	if err == nil && sendErr != nil && resp.StatusCode/100 == 2 {
		err = sendErr // not all of it was sent, whatever the answer says
	}
	if err == nil {
		return conn, resp, nil
	}
	_ = conn.Close()
	if sendErr != nil {
		err = sendErr
	}
	return nil, nil, unanswered(ctx, req.URL.Host, read, err)
}

// send writes the request by hand: http.Request.Write hides the cause of a failed write, and here a timeout, a stop
// and a reset are three things.
func send(conn *connection, req *http.Request) error {
	target := req.URL.RequestURI()
	if conn.viaProxy {
		target = req.URL.Scheme + "://" + req.URL.Host + target
	}
	w := bufio.NewWriterSize(conn.wire, sendBuffer)
	fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", req.Method, target, req.URL.Host)
	if req.Body != nil {
		fmt.Fprintf(w, "Content-Length: %d\r\n", req.ContentLength)
	}
	if err := req.Header.Write(w); err != nil {
		return err
	}
	if _, err := w.WriteString("\r\n"); err != nil {
		return err
	}
	if req.Body != nil {
		if _, err := io.Copy(w, req.Body); err != nil {
			return err
		}
	}
	return w.Flush()
}

// readHead passes over interim answers.
func readHead(conn *connection, req *http.Request) (*http.Response, error) {
	head := &io.LimitedReader{R: conn.wire, N: maxAnswerHead}
	r := bufio.NewReader(head)
	for {
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode/100 != 1 {
			head.N = 1<<63 - 1 // the body has its own bounds
			return resp, nil
		}
	}
}

// unanswered is what no answer means: transient, or the stop that cut the connection.
func unanswered(ctx context.Context, host string, silence time.Duration, err error) error {
	var own *failure
	switch {
	case stopped(ctx) != nil:
		return ErrStopped
	case ctx.Err() != nil:
		return transientf("%s gave no answer in the time there was", host)
	case errors.As(err, &own):
		return err
	case timedOut(err):
		return transientf("%s was silent for %s", host, silence)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return transientf("%s closed the connection before its answer was complete", host)
	}
	return transientf("no answer from %s: %s", host, networkReason(err))
}

// answerBody is the body of an answer. It closes the connection with itself.
type answerBody struct {
	conn    *connection
	body    io.Reader
	explain func(error) error // what a failed read means
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.explain(err)
	}
	return n, err
}

func (b *answerBody) Close() error { return b.conn.Close() }

// storeURL takes http and https only; its error doesn't quote what it was given.
func storeURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" ||
		strings.ContainsAny(u.RawQuery, " \r\n\t") {
		return nil, permanentf("a URL of the credentials envelope is not an http or https URL")
	}
	return u, nil
}
