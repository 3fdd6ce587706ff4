package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// ErrNobody is returned where nobody answers as the gateway.
var ErrNobody = errors.New("nobody answers as the gateway")

// maxAnswer bounds an answer's document; a bundle of 16,384 ranks is 8 MiB, and there may be one an epoch.
const maxAnswer = 1 << 30

// Client speaks the control API.
type Client struct{ http *http.Client }

// dialTimeout bounds the making of a connection.
const dialTimeout = 5 * time.Second

// Dial connects to a control socket and asks for Info, so that an answering daemon is known to be there.
func Dial(ctx context.Context, socket string) (*Client, Info, error) {
	return dial(ctx, &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialTimeout}
			return d.DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
	})
}

func dial(ctx context.Context, transport *http.Transport) (*Client, Info, error) {
	transport.IdleConnTimeout = idleFor
	c := &Client{http: &http.Client{Transport: transport}}
	info, err := c.Info(ctx)
	if err != nil {
		c.Close()
		return nil, Info{}, err
	}
	return c, info, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Info asks GET /v1/info.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var info Info
	return info, c.call(ctx, http.MethodGet, "/v1/info", nil, &info)
}

// Create makes a workload and its credentials; nothing has been handed to a scheduler yet.
func (c *Client) Create(ctx context.Context, r Create) (Created, error) {
	var made Created
	return made, c.call(ctx, http.MethodPost, "/v1/workloads", r, &made)
}

// Allocate asks for the bundles again if the workload was not submitted yet, else for a new allocation.
func (c *Client) Allocate(ctx context.Context, id scheduler.WorkloadID) (Created, error) {
	var made Created
	return made, c.call(ctx, http.MethodPost, path(string(id))+"/allocations", nil, &made)
}

// Report tells the outcome of the submission.
func (c *Client) Report(ctx context.Context, id scheduler.WorkloadID, s Submission) (Workload, error) {
	var w Workload
	return w, c.call(ctx, http.MethodPut, path(string(id))+"/submission", s, &w)
}

// ReportObservation tells what the owner saw.
func (c *Client) ReportObservation(ctx context.Context, id scheduler.WorkloadID, o ObservationReport) (Workload, error) {
	var w Workload
	return w, c.call(ctx, http.MethodPut, path(string(id))+"/observation", o, &w)
}

// List asks for workloads, newest first.
func (c *Client) List(ctx context.Context, which Which) (List, error) {
	q := url.Values{}
	if which.Job != "" {
		q.Set("job", which.Job)
	}
	if which.All {
		q.Set("all", "1")
	}
	if which.Limit > 0 {
		q.Set("limit", strconv.Itoa(which.Limit))
	}
	var list List
	return list, c.call(ctx, http.MethodGet, "/v1/workloads?"+q.Encode(), nil, &list)
}

// Get asks for one workload by id, by a unique prefix of one ("wl_3f" or "3f"), or by the scheduler's job id.
func (c *Client) Get(ctx context.Context, id string) (Workload, error) {
	var w Workload
	return w, c.call(ctx, http.MethodGet, path(id), nil, &w)
}

// Cancel fences the workload and stops its ranks.
func (c *Client) Cancel(ctx context.Context, id scheduler.WorkloadID) (Cancelled, error) {
	var a Cancelled
	return a, c.call(ctx, http.MethodPost, path(string(id))+"/cancel", nil, &a)
}

// eventsPatience is how long Events goes on without an answering daemon.
const eventsPatience = time.Minute

// Events calls fn with the workload now and after every change, until it is terminal (nil), or fn or ctx ends it.
// It reconnects by itself; ErrNobody after a minute without the daemon.
func (c *Client) Events(ctx context.Context, id scheduler.WorkloadID, fn func(Workload) error) error {
	last := time.Now()
	for {
		over, err := c.events(ctx, id, func(w Workload) error {
			last = time.Now()
			return fn(w)
		})
		switch {
		case over:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !errors.Is(err, ErrNobody):
			return err
		case time.Since(last) > eventsPatience:
			return fmt.Errorf("%w for %s", ErrNobody, eventsPatience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (c *Client) events(ctx context.Context, id scheduler.WorkloadID, fn func(Workload) error) (over bool, err error) {
	resp, err := c.do(ctx, http.MethodGet, path(string(id))+"/events", nil)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for {
		var w Workload
		if err := d.Decode(&w); err != nil {
			return false, fmt.Errorf("%w: %w", ErrNobody, err) // the daemon went away in mid-stream
		}
		if err := fn(w); err != nil {
			return false, err
		}
		if w.Phase.Terminal() {
			return true, nil
		}
	}
}

// Logs copies the gateway's bounded copy of a rank's output (rank -1: all, each line prefixed) to w.
func (c *Client) Logs(ctx context.Context, id scheduler.WorkloadID, rank int, follow bool, w io.Writer) error {
	q := url.Values{}
	if rank >= 0 {
		q.Set("rank", strconv.Itoa(rank))
	}
	if follow {
		q.Set("follow", "1")
	}
	resp, err := c.do(ctx, http.MethodGet, path(string(id))+"/logs?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("reading logs: %w", err)
	}
	return nil
}

func path(id string) string { return "/v1/workloads/" + url.PathEscape(id) }

// call makes one request and reads its answer into out.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("reading the daemon's answer: %w", err)
	}
	return nil
}

// do makes one request; an answer that isn't 2xx is an *Error.
func (c *Client) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("writing the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://openai4s"+path, body)
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		if answer := new(Error); errors.As(err, &answer) || errors.Is(err, ErrWrongKey) || errors.Is(err, ErrNobody) {
			return nil, err // said while connecting
		}
		return nil, fmt.Errorf("%w: %w", ErrNobody, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	var e struct {
		Error *Error `json:"error"`
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what could be read of it
	if json.Unmarshal(text, &e) != nil || e.Error == nil {
		e.Error = &Error{Code: "unavailable", Message: "the daemon answered " + resp.Status + ": " + strings.ToValidUTF8(string(text[:min(len(text), 200)]), "?")}
	}
	e.Error.Status = resp.StatusCode
	return nil, e.Error
}
