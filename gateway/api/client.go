package api

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/openai4s/hpc/scheduler"
)

// ErrNobody is returned by Dial where nobody answers on the control socket.
var ErrNobody = errors.New("nobody answers on the control socket")

// Client speaks the control API.
type Client struct{ http *http.Client }

// Dial connects to a control socket and asks for Info, so that an answering daemon is known to be there.
func Dial(ctx context.Context, socket string) (*Client, Info, error) { return nil, Info{}, ErrNobody }

// Info asks GET /v1/info.
func (c *Client) Info(ctx context.Context) (Info, error) { return Info{}, nil }

// Create makes a workload and its credentials; nothing has been handed to a scheduler yet.
func (c *Client) Create(ctx context.Context, r Create) (Created, error) { return Created{}, nil }

// Allocate asks for the bundles again if the workload was not submitted yet, else for a new allocation.
func (c *Client) Allocate(ctx context.Context, id scheduler.WorkloadID) (Created, error) {
	return Created{}, nil
}

// Report tells the outcome of the submission.
func (c *Client) Report(ctx context.Context, id scheduler.WorkloadID, s Submission) (Workload, error) {
	return Workload{}, nil
}

// ReportObservation tells what the owner saw.
func (c *Client) ReportObservation(ctx context.Context, id scheduler.WorkloadID, o ObservationReport) (Workload, error) {
	return Workload{}, nil
}

// List asks for the caller's workloads (everybody's with all, for admins); job filters by the scheduler's id.
func (c *Client) List(ctx context.Context, job string, all bool) ([]Workload, error) { return nil, nil }

// Get asks for one workload by id, by a unique prefix of one ("wl_3f" or "3f"), or by the scheduler's job id.
func (c *Client) Get(ctx context.Context, id string) (Workload, error) { return Workload{}, nil }

// Events calls fn with the workload now and after every change, until it is terminal (nil), fn or ctx ends it.
// It reconnects by itself; ErrNobody after a minute without the daemon.
func (c *Client) Events(ctx context.Context, id scheduler.WorkloadID, fn func(Workload) error) error {
	return nil
}

// Logs copies the gateway's bounded copy of a rank's output (rank -1: all, each line prefixed) to w.
func (c *Client) Logs(ctx context.Context, id scheduler.WorkloadID, rank int, follow bool, w io.Writer) error {
	return nil
}

// Cancel fences the workload and stops its ranks.
func (c *Client) Cancel(ctx context.Context, id scheduler.WorkloadID) (Cancelled, error) {
	return Cancelled{}, nil
}
