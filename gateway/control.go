package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// maxBody bounds a request's body on the control socket.
const maxBody = 4 << 20

// ServeControl serves the control API on a Unix socket, or to the callers that Remotes lets in, until ctx ends.
func (s *Server) ServeControl(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests := new(underWay)
	server := &http.Server{
		Handler:           s.handler(requests),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       remoteIdle,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			who, err := callerOf(c)
			if err != nil {
				return ctx // every handler refuses a caller that isn't known
			}
			who.crowded = s.open.take(c, who.UID)
			return context.WithValue(ctx, callerKey{}, who)
		},
		ConnState: s.open.state,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err := server.Serve(ln)
	cancel()
	server.Close()
	requests.wait() // nothing asks the store once this has returned
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the control API: %w", err)
	}
	return nil
}

// underWay counts requests. Those whose context is over don't begin, so that waiting for the rest has an end.
type underWay struct {
	mu sync.Mutex
	n  sync.WaitGroup
}

func (u *underWay) begin(ctx context.Context) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	u.n.Add(1)
	return true
}

func (u *underWay) end() { u.n.Done() }

// wait returns once no request is under way. The context of all that may come must be over.
func (u *underWay) wait() {
	u.mu.Lock() // whoever comes later sees that its context is over
	defer u.mu.Unlock()
	u.n.Wait()
}

type handlerFunc func(w http.ResponseWriter, r *http.Request, who caller) error

func (s *Server) handler(requests *underWay) http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, h handlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !requests.begin(r.Context()) {
				return
			}
			defer requests.end()
			who, ok := r.Context().Value(callerKey{}).(caller)
			if !ok {
				e := &api.Error{Status: http.StatusForbidden, Code: "not_allowed", Message: "the caller's uid can't be told"}
				s.audit.refusal(caller{UID: -1}, pattern, r.PathValue("id"), e.Code, e.Message)
				writeError(w, e)
				return
			}
			if who.crowded {
				e := s.open.refusal()
				s.audit.refusal(who, pattern, r.PathValue("id"), e.Code, e.Message)
				w.Header().Set("Connection", "close")
				writeError(w, e)
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if err := h(w, r, who); err != nil {
				e := s.toError(err)
				s.audit.refusal(who, pattern, r.PathValue("id"), e.Code, e.Message)
				writeError(w, e)
			}
		})
	}
	route("GET /v1/info", s.getInfo)
	route("GET /v1/store", s.getStore)
	route("POST /v1/workloads", s.postWorkload)
	route("GET /v1/workloads", s.getWorkloads)
	route("GET /v1/workloads/{id}", s.getWorkload)
	route("GET /v1/workloads/{id}/events", s.getEvents)
	route("GET /v1/workloads/{id}/logs", s.getLogs)
	route("POST /v1/workloads/{id}/allocations", s.postAllocation)
	route("PUT /v1/workloads/{id}/submission", s.putSubmission)
	route("PUT /v1/workloads/{id}/observation", s.putObservation)
	route("POST /v1/workloads/{id}/cancel", s.postCancel)
	return mux
}

func (s *Server) toError(err error) *api.Error {
	var e *api.Error
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &tooLong):
		return &api.Error{Status: http.StatusRequestEntityTooLarge, Code: "bad_request", Message: fmt.Sprintf("the request is over %d bytes", maxBody),
			Hint: "pass large data in a file that the job reads, not in argv, [env] or [secrets]"}
	case errors.Is(err, ErrNoWorkload):
		return &api.Error{Status: http.StatusNotFound, Code: "not_found", Message: "no such workload", Hint: "openai4s list shows yours"}
	}
	s.log.Error().Err(err).Msg("a control request failed")
	return &api.Error{Status: http.StatusServiceUnavailable, Code: "unavailable", Message: clean(err.Error()), Hint: "the daemon's log says more"}
}

func writeError(w http.ResponseWriter, e *api.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(map[string]*api.Error{"error": e}) // the caller may be gone
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone
	return nil
}

func readBody(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows its document")
		}
	}
	if err != nil {
		var tooLong *http.MaxBytesError
		if errors.As(err, &tooLong) {
			return err
		}
		return badRequest("the request can't be read: " + err.Error())
	}
	return nil
}

func badRequest(text string) *api.Error {
	return &api.Error{Status: http.StatusBadRequest, Code: "bad_request", Message: clean(text)}
}

func (s *Server) getInfo(w http.ResponseWriter, _ *http.Request, _ caller) error {
	info := api.Info{
		Version: s.cfg.Version, Protocols: []string{api.Protocol}, Widest: s.cfg.Widest, SiteSHA256: s.cfg.SiteSHA256,
		PID: os.Getpid(), Embedded: s.cfg.Embedded, Addresses: s.cfg.Addresses, Live: s.LiveCount(), Admitting: true,
		Facts: s.facts(), Handshakes: s.counters.snapshot(s.slots), Scheduler: "not asked yet",
	}
	if err := s.fence.Healthy(); err != nil {
		info.Admitting, info.Why = false, clean(err.Error())
	}
	if t := s.observed.Load(); t != nil {
		info.ObservedAt, info.Scheduler = t.at, "ok"
		if t.err != nil {
			info.Scheduler = clean(t.err.Error())
		}
	}
	return writeJSON(w, http.StatusOK, info)
}

// lookup finds a live or recent workload, or a stored one, that the caller may know of.
func (s *Server) lookup(id string, who caller) (*live, error) {
	s.mu.Lock()
	l := s.live[scheduler.WorkloadID(id)]
	if l == nil {
		l = s.past[scheduler.WorkloadID(id)]
	}
	s.mu.Unlock()
	if l == nil || l.uid != who.UID && !s.isAdmin(who) {
		return nil, ErrNoWorkload
	}
	s.audit.looked(who, id, l.uid)
	return l, nil
}

// find resolves what a person typed: an id, a unique prefix of one, or the scheduler's job id.
func (s *Server) find(text string, who caller) (api.Workload, error) {
	if l, err := s.lookup(text, who); err == nil {
		return l.view(), nil
	}
	prefix := strings.TrimPrefix(text, "wl_")
	var byPrefix, byJob []api.Workload
	owner := who.UID
	if s.isAdmin(who) {
		owner = everybody
	}
	err := s.everyRecord(owner, func(e entry) {
		switch {
		case e.jobOf:
			byJob = append(byJob, e.view())
		case len(prefix) >= 2 && strings.HasPrefix(strings.TrimPrefix(string(e.id), "wl_"), prefix):
			byPrefix = append(byPrefix, e.view())
		}
	}, text)
	if err != nil {
		return api.Workload{}, err
	}
	found := byPrefix
	if len(found) == 0 {
		found = byJob
	}
	switch len(found) {
	case 0:
		return api.Workload{}, ErrNoWorkload
	case 1:
		s.audit.looked(who, string(found[0].ID), found[0].UID)
		return found[0], nil
	}
	ids := make([]string, 0, len(found))
	for _, w := range found {
		ids = append(ids, string(w.ID))
	}
	return api.Workload{}, &api.Error{Status: http.StatusConflict, Code: "ambiguous", Message: fmt.Sprintf("%q fits several workloads: %s", clean(text), strings.Join(ids, ", ")), Hint: "give more of the id"}
}

// entry is a workload in a list: what it takes to choose, and how to see the rest.
type entry struct {
	id      scheduler.WorkloadID
	created int64 // nanoseconds since 1970
	over    bool
	jobOf   bool // the text asked for is one of its jobs
	view    func() api.Workload
}

func entryOf(r *record, text string, view func() api.Workload) entry {
	return entry{r.ID, r.Created.UnixNano(), r.Phase.Terminal(), r.jobOf(text), view}
}

// everyRecord calls fn with the workloads of one owner, or of everybody, live ones as they are now.
func (s *Server) everyRecord(owner int, fn func(entry), text string) error {
	seen := map[scheduler.WorkloadID]bool{}
	for _, l := range s.all() {
		if owner != everybody && l.uid != owner {
			continue
		}
		l.mu.Lock()
		e := entryOf(l.rec, text, l.view)
		l.mu.Unlock()
		seen[e.id] = true
		fn(e)
	}
	return s.store.stored(owner, func(id scheduler.WorkloadID) bool { return seen[id] }, func(r *record) { fn(entryOf(r, text, r.view)) })
}
