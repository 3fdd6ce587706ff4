package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/scheduler"
)

// control serves the control API on a socket, as the process's own uid.
func (r *rig) control() *api.Client {
	r.t.Helper()
	c, _ := r.controlAt(filepath.Join(r.t.TempDir(), "c.sock"))
	return c
}

func (r *rig) controlAt(path string) (c *api.Client, dial func() net.Conn) {
	r.t.Helper()
	ln, err := net.Listen("unix", path)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.server.ServeControl(ctx, ln); err != nil {
			r.t.Errorf("serving the control socket: %v", err)
		}
	})
	c, info, err := api.Dial(ctx, path)
	require.NoError(r.t, err)
	assert.Equal(r.t, os.Getpid(), info.PID)
	r.t.Cleanup(func() { c.Close(); cancel(); wg.Wait() })
	return c, func() net.Conn {
		conn, err := net.Dial("unix", path)
		require.NoError(r.t, err)
		r.t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// as calls one route in the name of another uid, which only the kernel could say on a socket.
func (r *rig) as(uid int, method, path string, body any) (int, string) {
	r.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		require.NoError(r.t, err)
		in = bytes.NewReader(text)
	}
	req := httptest.NewRequest(method, path, in)
	if uid >= 0 {
		req = req.WithContext(context.WithValue(req.Context(), callerKey{}, caller{UID: uid, GID: uint32(uid)}))
	}
	w := httptest.NewRecorder()
	r.server.handler(new(underWay)).ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

const (
	alice = 54321
	bob   = 54322
)

// made makes a workload in a user's name.
func (r *rig) made(uid int, edit ...func(*api.Create)) api.Created {
	r.t.Helper()
	c := request(2)
	for _, e := range edit {
		e(&c)
	}
	status, body := r.as(uid, "POST", "/v1/workloads", c)
	require.Contains(r.t, []int{200, 201}, status, body)
	var made api.Created
	decodeJSON(r.t, []byte(body), &made)
	return made
}

func TestControlOverTheSocket(t *testing.T) {
	r := newRig(t).serve()
	c := r.control()
	ctx := t.Context()
	body := request(2)
	body.Request.Restarts, body.Labels = 1, map[string]string{"project": "x"}
	made, err := c.Create(ctx, body)
	require.NoError(t, err)
	assert.Len(t, made.Bundles, 2, "one for each epoch")
	assert.Equal(t, scheduler.Submitting, made.Workload.Phase)
	assert.Regexp(t, "^openai4s-fold-[0-9a-f]{12}$", made.JobName)
	assert.Equal(t, os.Getuid(), made.Workload.UID)
	id := made.Workload.ID

	again, err := c.Allocate(ctx, id)
	require.NoError(t, err)
	assert.Equal(t, made.JobName, again.JobName, "the same allocation while nothing was submitted")
	w, err := c.Report(ctx, id, api.Submission{Outcome: scheduler.Created, Job: scheduler.JobID{ID: "7", Cluster: "c3"}})
	require.NoError(t, err)
	assert.Equal(t, scheduler.Pending, w.Phase)
	assert.Equal(t, "/tmp/out-"+string(id)+"-7.txt", w.Output)
	<-r.poked
	_, err = c.Allocate(ctx, id)
	assert.ErrorContains(t, err, "its allocation stands")

	for _, text := range []string{string(id), string(id)[:7], strings.TrimPrefix(string(id), "wl_")[:6], "7", "7@c3"} {
		w, err := c.Get(ctx, text)
		require.NoError(t, err, text)
		assert.Equal(t, id, w.ID)
	}
	list, err := c.List(ctx, api.Which{Job: "7", All: true})
	require.NoError(t, err)
	assert.Len(t, list.Workloads, 1)
	list, err = c.List(ctx, api.Which{Job: "8"})
	require.NoError(t, err)
	assert.Empty(t, list.Workloads)

	phases := make(chan scheduler.Phase, 100)
	over := make(chan error, 1)
	go func() {
		over <- c.Events(ctx, id, func(w api.Workload) error { phases <- w.Phase; return nil })
	}()
	assert.Equal(t, scheduler.Pending, <-phases)
	w, err = c.ReportObservation(ctx, id, api.ObservationReport{Observation: &scheduler.Observation{Phase: scheduler.Granted}})
	require.NoError(t, err)
	assert.Equal(t, scheduler.Granted, w.Phase)
	cancelled, err := c.Cancel(ctx, id)
	require.NoError(t, err)
	assert.False(t, cancelled.Workload.Phase.Terminal(), "the job is still there")
	_, err = c.ReportObservation(ctx, id, api.ObservationReport{Observation: &scheduler.Observation{Phase: scheduler.Cancelled}})
	require.NoError(t, err)
	require.NoError(t, <-over)
	close(phases)
	var last scheduler.Phase
	for p := range phases {
		last = p
	}
	assert.Equal(t, scheduler.Cancelled, last)
	_, err = c.Get(ctx, "wl_ffffffffffff")
	var e *api.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 404, e.Status)
}

// Another's workload is not found, rather than forbidden, on every route.
func TestAnothersWorkloadIsNotFound(t *testing.T) {
	r := newRig(t).serve()
	id := string(r.made(alice).Workload.ID)
	bodies := map[string]any{"submission": api.Submission{Outcome: scheduler.Unknown}, "observation": api.ObservationReport{}}
	for _, route := range []string{"GET ", "GET events", "GET logs", "POST allocations", "PUT submission", "PUT observation", "POST cancel"} {
		method, rest, _ := strings.Cut(route, " ")
		path := "/v1/workloads/" + id
		if rest != "" {
			path += "/" + rest
		}
		t.Run(route, func(t *testing.T) {
			status, body := r.as(bob, method, path, bodies[rest])
			assert.Equal(t, 404, status)
			_, none := r.as(bob, method, strings.Replace(path, id, "wl_ffffffffffff", 1), bodies[rest])
			assert.Equal(t, none, body, "as if there were none")
		})
	}
	_, list := r.as(bob, "GET", "/v1/workloads", nil)
	assert.NotContains(t, list, id)
	status, _ := r.as(bob, "GET", "/v1/workloads?all=1", nil)
	assert.Equal(t, 403, status)
	status, _ = r.as(bob, "GET", "/v1/workloads/"+id[:6], nil)
	assert.Equal(t, 404, status, "nor by a prefix")

	status, _ = r.as(0, "GET", "/v1/workloads/"+id, nil)
	assert.Equal(t, 200, status, "root sees all")
	status, _ = r.as(0, "POST", "/v1/workloads/"+id+"/allocations", nil)
	assert.Equal(t, 403, status, "and submits for nobody")
	status, _ = r.as(alice, "GET", "/v1/workloads/"+id, nil)
	assert.Equal(t, 200, status)
	status, _ = r.as(-1, "GET", "/v1/info", nil)
	assert.Equal(t, 403, status, "a caller whom the kernel doesn't name")
}

func TestAdmins(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Admins = []string{"root", "no-such-group-here"} }).serve()
	assert.True(t, r.server.isAdmin(caller{UID: bob, GID: bob, Groups: []uint32{5, 0}}), "by a supplementary group")
	assert.True(t, r.server.isAdmin(caller{UID: bob, GID: 0}), "by its group")
	assert.False(t, r.server.isAdmin(caller{UID: bob, GID: bob, Groups: []uint32{bob}}))
}

func TestRequestsThatAreRefused(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Widest = 8; c.MaxLive = 2 }).serve()
	with := func(edit func(*api.Create)) api.Create { c := request(2); edit(&c); return c }
	for _, tt := range []struct {
		name   string
		body   any
		status int
		says   string
	}{
		{"nothing", "", 400, "can't be read"},
		{"garbage", "{", 400, "can't be read"},
		{"an unknown field", `{"surprise": 1}`, 400, "unknown field"},
		{"two documents", `{} {}`, 400, "can't be read"},
		{"too large", `{"idempotency_key": "` + strings.Repeat("x", maxBody) + `"}`, 413, "over"},
		{"too wide", with(func(c *api.Create) { c.Request.Nodes = 9 }), 422, "widest allocation of 8"},
		{"no nodes", with(func(c *api.Create) { c.Request.Nodes = 0 }), 400, "at least 1"},
		{"a product that overflows", with(func(c *api.Create) { c.Request.Nodes, c.Request.RanksPerNode = 1<<32, 1<<32+1 }), 400, "at least 1"},
		{"another scheduler", with(func(c *api.Create) { c.Request.System = "elsewhere" }), 400, "serves the scheduler"},
		{"too many restarts", with(func(c *api.Create) { c.Request.Restarts = 101 }), 400, "0 to 100"},
		{"a relative folder", with(func(c *api.Create) { c.Request.RuntimeDir = "run" }), 400, "absolute"},
		{"an unknown kind", with(func(c *api.Create) { c.Request.Kind = "daemon" }), 400, "batch or session"},
		{"no command", with(func(c *api.Create) { c.Start.Argv = nil }), 400, "command is empty"},
		{"no gang timeout", with(func(c *api.Create) { c.Request.GangTimeout = 0 }), 400, "positive"},
		{"a start order that fits no frame", with(func(c *api.Create) { c.Start.Env = map[string]string{"A": strings.Repeat("x", wire.MaxFrame)} }), 400, "at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, body := r.as(alice, "POST", "/v1/workloads", tt.body)
			assert.Equal(t, tt.status, status)
			assert.Contains(t, body, tt.says)
			assert.LessOrEqual(t, len(body), 4096)
		})
	}
	assert.Zero(t, r.server.LiveCount())
	r.made(alice)
	id := r.made(alice).Workload.ID
	status, body := r.as(alice, "POST", "/v1/workloads", request(2))
	assert.Equal(t, 429, status)
	assert.Contains(t, body, "2 live workloads")
	r.made(bob)

	status, _ = r.as(alice, "PUT", "/v1/workloads/"+string(id)+"/submission", `{"outcome": "perhaps"}`)
	assert.Equal(t, 400, status)
	status, _ = r.as(alice, "PUT", "/v1/workloads/"+string(id)+"/submission", `{"outcome": "created"}`)
	assert.Equal(t, 400, status, "a job that was made has an id")
	status, _ = r.as(alice, "DELETE", "/v1/workloads/"+string(id), nil)
	assert.Equal(t, 405, status)
	status, _ = r.as(alice, "GET", "/v2/workloads", nil)
	assert.Equal(t, 404, status)
}

func TestIdempotencyKey(t *testing.T) {
	r := newRig(t).serve()
	keyed := func(c *api.Create) { c.IdempotencyKey = "k1" }
	first := r.made(alice, keyed)
	second := r.made(alice, keyed)
	assert.Equal(t, first.Workload.ID, second.Workload.ID)
	assert.True(t, second.Existing)
	assert.Empty(t, second.Bundles)
	assert.NotEqual(t, first.Workload.ID, r.made(bob, keyed).Workload.ID, "a key is its owner's")
	assert.NotEqual(t, first.Workload.ID, r.made(alice).Workload.ID)
	keys, err := os.ReadDir(filepath.Join(r.dir, "keys"))
	require.NoError(t, err)
	assert.Len(t, keys, 3, "no sealing key is left of what was not made")
}

func TestAmbiguousPrefix(t *testing.T) {
	r := newRig(t).serve()
	for _, id := range []scheduler.WorkloadID{"wl_aabbcc000001", "wl_aabbcc000002"} {
		_, err := r.server.store.create(&record{ID: id, UID: alice, Phase: scheduler.Failed, Attempts: make([]allocation, 1)}, nil)
		require.NoError(t, err)
	}
	status, body := r.as(alice, "GET", "/v1/workloads/wl_aabbcc", nil)
	assert.Equal(t, 409, status)
	assert.Contains(t, body, "fits several")
	status, _ = r.as(alice, "GET", "/v1/workloads/aabbcc000002", nil)
	assert.Equal(t, 200, status)
	status, _ = r.as(alice, "GET", "/v1/workloads/a", nil)
	assert.Equal(t, 404, status, "one digit is no prefix")
}

// FuzzControlBodies: whatever is sent, the answer is a document and nothing is half made.
func FuzzControlBodies(f *testing.F) {
	good, err := json.Marshal(request(2))
	require.NoError(f, err)
	f.Add("POST", "/v1/workloads", string(good))
	f.Add("POST", "/v1/workloads", `{"request":{"nodes":1e999}}`)
	f.Add("PUT", "/v1/workloads/wl_1/submission", `{"outcome":"created","job":{"id":"7"}}`)
	f.Add("PUT", "/v1/workloads/wl_1/observation", `{"exits":[{"epoch":0,"rank":-1}]}`)
	r := newRig(f)
	ctx, cancel := context.WithCancel(context.Background())
	burnt := make(chan struct{})
	go func() { defer close(burnt); _ = r.fence.Run(ctx) }()
	f.Cleanup(func() { cancel(); <-burnt })
	handler := r.server.handler(new(underWay))
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if method != "POST" && method != "PUT" || !strings.HasPrefix(path, "/v1/") || strings.ContainsAny(path, " ?#%") || !printable(path) {
			return // no request that a client could make
		}
		req := httptest.NewRequest(method, path, strings.NewReader(body))
		req = req.WithContext(context.WithValue(req.Context(), callerKey{}, caller{UID: alice}))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
	})
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x21 || r > 0x7e })
}
