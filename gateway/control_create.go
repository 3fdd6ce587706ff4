package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/scheduler"
)

// maxRestarts bounds the epochs that one allocation is issued credentials for.
const maxRestarts = 100

// startRoom is what a start order needs beside what the user put into it, in bytes.
const startRoom = 64 << 10

// postWorkload makes a workload and its credentials. Nothing has been handed to a scheduler yet: the workload and its
// job name are stored first, so that whatever happens next can be found out.
func (s *Server) postWorkload(w http.ResponseWriter, r *http.Request, who caller) error {
	var body api.Create
	if err := readBody(r, &body); err != nil {
		return err
	}
	if err := s.check(body); err != nil {
		return err
	}
	if known, err := s.store.known(who.UID, body.IdempotencyKey); err != nil || known != "" {
		return s.existing(w, known, err, who)
	}
	release, err := s.reserve(who.UID, credentialsOf(body.Request))
	if err != nil {
		return err
	}
	defer release()
	now := s.now()
	rec := &record{
		ID: scheduler.WorkloadID("wl_" + newHex()), UID: who.UID, Owner: userName(who.UID), Key: body.IdempotencyKey,
		Labels: body.Labels, Request: body.Request, Inputs: body.Inputs, Outputs: body.Outputs, Recover: body.Recover,
		Phase: scheduler.Submitting, Created: now, Version: 1,
	}
	s.newAllocation(rec)
	made, err := s.bundles(r.Context(), rec)
	if err != nil {
		return err
	}
	sealed, err := s.sealer.seal(rec.ID, body.Start)
	if err != nil {
		return err
	}
	l := s.newLive(rec)
	known, err := s.store.create(rec, sealed)
	if err != nil || known != "" {
		_ = s.sealer.forget(rec.ID) // nothing was sealed with it
		return s.existing(w, known, err, who)
	}
	s.add(l)
	release() // it counts as live now
	s.audit.decision("created", who.UID, string(rec.ID), fmt.Sprintf("%d ranks, profile %s, job name %s", rec.Request.Size(), rec.Request.Profile, rec.current().JobName))
	made.Workload = l.view()
	return writeJSON(w, http.StatusCreated, made)
}

// existing answers with the workload that the owner's idempotency key made before.
func (s *Server) existing(w http.ResponseWriter, known scheduler.WorkloadID, err error, who caller) error {
	if err != nil {
		return err
	}
	wl, err := s.find(string(known), who)
	if err != nil {
		return err
	}
	s.audit.decision("existing", who.UID, string(wl.ID), "the idempotency key is known")
	return writeJSON(w, http.StatusOK, api.Created{Workload: wl, Existing: true, JobName: wl.JobName})
}

// credentialsOf a workload: one a rank and start.
func credentialsOf(r scheduler.Request) int { return r.Size() * (r.Restarts + 1) }

// check holds a request to what this daemon can serve. Everything else was checked by whoever made the request.
func (s *Server) check(c api.Create) error {
	req := c.Request
	size := req.Size()
	switch {
	case req.Nodes < 1 || req.RanksPerNode < 1 || size < 1 || size/req.Nodes != req.RanksPerNode:
		return badRequest("nodes and ranks per node must be at least 1")
	case size > s.cfg.Widest:
		return &api.Error{Status: http.StatusUnprocessableEntity, Code: "too_wide",
			Message: fmt.Sprintf("%d ranks are more than this daemon's widest allocation of %d", size, s.cfg.Widest),
			Hint:    "the daemon was started with another site file; restart it with the current one"}
	case req.System != s.cfg.System:
		return badRequest(fmt.Sprintf("this daemon serves the scheduler %q, not %q", s.cfg.System, req.System))
	case req.Restarts < 0 || req.Restarts > maxRestarts || c.Recover < 0 || c.Recover > maxRestarts:
		return badRequest(fmt.Sprintf("restarts and recoveries must be 0 to %d", maxRestarts))
	case !filepath.IsAbs(req.RuntimeDir) || !filepath.IsAbs(req.Workdir):
		return badRequest("runtime_dir and workdir must be absolute")
	case req.Kind != scheduler.Batch && req.Kind != scheduler.Session:
		return badRequest("kind must be batch or session")
	case len(c.Start.Argv) == 0 || c.Start.Argv[0] == "":
		return badRequest("the command is empty")
	case req.GangTimeout <= 0 || req.Signal.Grace < 0 || req.Walltime <= 0:
		return badRequest("durations must be positive")
	case len(s.cfg.Addresses) == 0:
		return &api.Error{Status: http.StatusServiceUnavailable, Code: "unavailable", Message: "this daemon opens no socket for agents", Hint: "set listen and advertise under [gateway] in site.toml and restart the daemon"}
	}
	if err := s.fence.Healthy(); err != nil {
		return &api.Error{Status: http.StatusServiceUnavailable, Code: "unavailable", Message: "this daemon admits no ranks now: " + clean(err.Error()), Hint: "its administrator must look at the state folder"}
	}
	start, err := json.Marshal(c.Start)
	if err != nil {
		return badRequest(err.Error())
	}
	if len(start) > wire.MaxFrame-startRoom {
		return badRequest(fmt.Sprintf("command, setup, environment and secrets take %d bytes, at most %d fit", len(start), wire.MaxFrame-startRoom))
	}
	return nil
}

// newAllocation adds an allocation whose epochs follow all that were ever issued.
func (s *Server) newAllocation(r *record) {
	a := allocation{
		ID: scheduler.AllocationID("alloc_" + newHex()), Epochs: int64(r.Request.Restarts) + 1,
		Expires: s.now().Add(s.cfg.CredentialTTL),
	}
	if n := len(r.Attempts); n > 0 {
		last := r.Attempts[n-1]
		a.FirstEpoch = last.FirstEpoch + last.Epochs
	}
	a.JobName = scheduler.JobName(r.Request, a.ID)
	r.Attempts = append(r.Attempts, a)
}

// bundles issues the credentials of the current allocation, one bundle per epoch.
func (s *Server) bundles(ctx context.Context, r *record) (api.Created, error) {
	a := r.current()
	made := api.Created{JobName: a.JobName, FirstEpoch: a.FirstEpoch}
	for epoch := a.FirstEpoch; epoch < a.FirstEpoch+a.Epochs; epoch++ {
		file, lines, err := s.gate.IssueGang(ctx, credential.Gang{
			Workload: string(r.ID), Allocation: string(a.ID), Epoch: epoch, Size: r.Request.Size(), RanksPerNode: r.Request.RanksPerNode,
			Expires: a.Expires, Addresses: s.cfg.Addresses, TLS: s.cfg.TLSMode != "off", Pins: s.pins(), DialTimeout: s.cfg.DialTimeout,
			Attest: s.cfg.Attest, Munge: s.cfg.Munge,
		})
		if err != nil {
			return api.Created{}, err
		}
		made.Bundles = append(made.Bundles, file)
		if r.Request.UpstreamFiles {
			made.Upstream = append(made.Upstream, lines)
		}
	}
	return made, nil
}

func (s *Server) pins() []string {
	if s.cfg.TLSMode == "off" {
		return nil
	}
	return s.cfg.Pins
}

// postAllocation issues the bundles again while nothing was submitted, or a new allocation after a lost one.
func (s *Server) postAllocation(w http.ResponseWriter, r *http.Request, who caller) error {
	l, err := s.lookup(r.PathValue("id"), who)
	if err != nil {
		return err
	}
	if l.uid != who.UID {
		return &api.Error{Status: http.StatusForbidden, Code: "not_allowed", Message: "only its owner submits a workload"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.rec.Resubmit && !l.rec.Phase.Terminal():
		l.afresh()
		s.newAllocation(l.rec)
		s.mu.Lock()
		s.byAlloc[l.rec.current().ID] = l
		s.mu.Unlock()
		l.rec.note("allocation "+string(l.rec.current().ID)+" follows", s.now())
	case !l.rec.phaseOpen():
		return &api.Error{Status: http.StatusConflict, Code: "conflict", Message: fmt.Sprintf("%s is %s: its allocation stands", l.rec.ID, strings.ToLower(string(l.rec.Phase)))}
	}
	made, err := s.bundles(r.Context(), l.rec)
	if err != nil {
		return err
	}
	l.save()
	made.Workload = l.viewLocked()
	s.audit.decision("credentials", who.UID, string(l.rec.ID), fmt.Sprintf("%d issued for %s, epochs from %d", credentialsOf(l.rec.Request), l.rec.current().ID, made.FirstEpoch))
	return writeJSON(w, http.StatusCreated, made)
}
