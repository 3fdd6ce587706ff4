package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// listed bounds how many workloads that are over a list shows where it names no limit; live ones are all shown.
const listed = 1000

func (s *Server) getWorkloads(w http.ResponseWriter, r *http.Request, who caller) error {
	query := r.URL.Query()
	all := query.Get("all") != ""
	if all && !s.isAdmin(who) {
		return &api.Error{Status: http.StatusForbidden, Code: "not_allowed", Message: "only administrators see everybody's workloads", Hint: "leave --all away to see yours"}
	}
	limit := 0
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return badRequest(fmt.Sprintf("limit is %q; it must be a number of workloads, or 0 for no limit", clean(text)))
		}
		limit = n
	}
	owner := who.UID
	if all {
		s.audit.looked(who, "", -1)
		owner = everybody
	}
	found := []entry{}
	job := query.Get("job")
	err := s.everyRecord(owner, func(e entry) {
		if job == "" || e.jobOf {
			found = append(found, e)
		}
	}, job)
	if err != nil {
		return err
	}
	list := api.List{Workloads: []api.Workload{}, Total: len(found)}
	for _, e := range newest(found, limit) {
		list.Workloads = append(list.Workloads, e.view())
	}
	return writeJSON(w, http.StatusOK, list)
}

// newest sorts the entries, newest first, and keeps at most limit: live ones before those that are over. Without a
// limit it keeps all live ones and a bounded number of others.
func newest(found []entry, limit int) []entry {
	slices.SortFunc(found, func(a, b entry) int { return cmp.Compare(b.created, a.created) })
	live := 0
	for _, e := range found {
		if !e.over {
			live++
		}
	}
	over := listed
	if limit > 0 {
		live = min(live, limit)
		over = limit - live
	}
	return slices.DeleteFunc(found, func(e entry) bool {
		left := &live
		if e.over {
			left = &over
		}
		*left--
		return *left < 0
	})
}

func (s *Server) getWorkload(w http.ResponseWriter, r *http.Request, who caller) error {
	wl, err := s.find(r.PathValue("id"), who)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wl)
}

// getEvents streams the workload now and after every change, a JSON document a line, until it is over.
func (s *Server) getEvents(w http.ResponseWriter, r *http.Request, who caller) error {
	l, err := s.lookup(r.PathValue("id"), who)
	if err != nil {
		wl, err := s.find(r.PathValue("id"), who) // over long ago: one line
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, wl)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	refresh := time.NewTicker(heartbeat)
	defer refresh.Stop()
	for {
		l.mu.Lock()
		wl, changed := l.viewLocked(), l.changed
		l.mu.Unlock()
		if err := out.Encode(wl); err != nil {
			return nil
		}
		if err := http.NewResponseController(w).Flush(); err != nil || wl.Phase.Terminal() {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-changed:
		case <-refresh.C: // what depends on the clock alone: silent ranks, wants
		}
	}
}

func (s *Server) putSubmission(w http.ResponseWriter, r *http.Request, who caller) error {
	l, err := s.lookup(r.PathValue("id"), who)
	if err != nil {
		return err
	}
	var body api.Submission
	if err := readBody(r, &body); err != nil {
		return err
	}
	if (body.Outcome == scheduler.Created || body.Outcome == scheduler.Existing) && body.Job.IsZero() {
		return badRequest("a submission that made a job must name it")
	}
	switch body.Outcome {
	case scheduler.Created, scheduler.Existing, scheduler.Rejected, scheduler.Unknown:
	default:
		return badRequest(fmt.Sprintf("unknown outcome %q", string(body.Outcome)))
	}
	body.Text = clean(body.Text)
	l.mu.Lock()
	l.rec.submitted(body, s.now())
	l.save()
	l.settle(s.now())
	wl := l.viewLocked()
	l.mu.Unlock()
	s.audit.decision("submission", who.UID, string(wl.ID), string(body.Outcome)+" "+body.Job.String())
	s.poke()
	return writeJSON(w, http.StatusOK, wl)
}

func (s *Server) putObservation(w http.ResponseWriter, r *http.Request, who caller) error {
	l, err := s.lookup(r.PathValue("id"), who)
	if err != nil {
		return err
	}
	var body api.ObservationReport
	if err := readBody(r, &body); err != nil {
		return err
	}
	before := l.view().Phase
	if err := l.reported(body); err != nil {
		return err
	}
	wl := l.view()
	if wl.Phase != before {
		s.audit.decision("observation", who.UID, string(wl.ID), string(before)+" to "+string(wl.Phase)+" by its owner's report")
	}
	return writeJSON(w, http.StatusOK, wl)
}

func (s *Server) postCancel(w http.ResponseWriter, r *http.Request, who caller) error {
	l, err := s.lookup(r.PathValue("id"), who)
	if err != nil {
		wl, err := s.find(r.PathValue("id"), who)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, api.Cancelled{Workload: wl}) // over already: nothing to do
	}
	by := "user"
	if who.UID != l.uid {
		by = "admin"
	}
	byCaller := l.cancel(by, who.UID)
	s.poke()
	return writeJSON(w, http.StatusAccepted, api.Cancelled{Workload: l.view(), ByCaller: byCaller})
}

// cancel fences the workload durably, then stops its ranks. The job itself is cancelled once they are drained.
func (l *live) cancel(by string, uid int) (byCaller bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.srv.now()
	if l.rec.Phase.Terminal() {
		return false
	}
	if l.rec.Cancel == "" && (l.rec.Resubmit || l.rec.Outcome == nil || l.rec.Outcome.Cause == gang.Undecided) {
		l.rec.Cancel = by
		l.rec.Recover = 0
		l.rec.touch()
		l.save() // the fence: from here on no new rank is admitted, also after a crash
		l.srv.audit.decision("cancel", uid, string(l.rec.ID), "asked by "+by)
		l.act(l.gang.Stop(gang.Outcome{Cause: gang.Stopped, Code: 20, Rank: -1}, now), now)
	}
	if l.rec.Cancel != "" && l.rec.Resubmit {
		l.rec.end(scheduler.Cancelled, l.rec.cancelReason(), "the next allocation was not submitted", now)
	}
	l.settle(now)
	// An administrator who isn't root may have no such right at the scheduler; the ranks that were stopped end the job.
	ends := uid == l.uid || uid == 0
	return ends && !l.rec.Phase.Terminal() && !l.rec.current().Job.IsZero() && !l.srv.mayCancel(l.uid)
}

func (s *Server) getLogs(w http.ResponseWriter, r *http.Request, who caller) error {
	l, err := s.lookup(r.PathValue("id"), who)
	if err != nil {
		if _, err := s.find(r.PathValue("id"), who); err != nil {
			return err
		}
		return &api.Error{Status: http.StatusGone, Code: "gone", Message: "the gateway keeps no copy of this workload's output any more", Hint: "read its output file"}
	}
	rank := -1
	if q := r.URL.Query().Get("rank"); q != "" {
		n, err := strconv.Atoi(q)
		if err != nil || n < 0 || n >= len(l.logs.ranks) {
			return badRequest("no such rank: " + q)
		}
		rank = n
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	l.copyLogs(w, r, rank, r.URL.Query().Get("follow") != "")
	return nil
}

// copyLogs writes a rank's output, or everybody's with each line marked, and follows it until the workload is over.
func (l *live) copyLogs(w http.ResponseWriter, r *http.Request, rank int, follow bool) {
	at := make([]int64, len(l.logs.ranks))
	tails := make([]string, len(at))
	for {
		// Both channels before any reading: what comes from here on closes them.
		l.mu.Lock()
		over, changed := l.rec.Phase.Terminal(), l.changed
		l.mu.Unlock()
		more := l.logs.more()
		for i := range at {
			if rank >= 0 && i != rank {
				continue
			}
			var out []byte
			out, at[i] = l.logs.read(i, at[i])
			if rank < 0 {
				out = marked(out, i, &tails[i], over || !follow)
			}
			if _, err := w.Write(out); err != nil {
				return
			}
		}
		if err := http.NewResponseController(w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) || over || !follow {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-more:
		case <-changed:
		}
	}
}

// marked puts the rank before each whole line; what has no end yet is kept for later unless last.
func marked(out []byte, rank int, tail *string, last bool) []byte {
	text := *tail + string(out)
	*tail = ""
	var b strings.Builder
	for text != "" {
		line, rest, ended := strings.Cut(text, "\n")
		if !ended && !last {
			*tail = text
			break
		}
		b.WriteString(strconv.Itoa(rank) + ": " + line + "\n")
		text = rest
	}
	return []byte(b.String())
}
