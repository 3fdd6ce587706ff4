package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/site"
	"github.com/openai4s/hpc/site/job"
)

// scripted is a scheduler that answers as it is told.
type scripted struct {
	scheduler.System
	receipt   scheduler.Receipt
	err       error
	submitted int
	find      func(asked int) ([]scheduler.JobID, error)
	asked     int
	who       scheduler.Identity
}

func (s *scripted) Submit(context.Context, scheduler.Submission) (scheduler.Receipt, error) {
	s.submitted++
	return s.receipt, s.err
}

func (s *scripted) Find(_ context.Context, who scheduler.Identity) ([]scheduler.JobID, error) {
	s.asked++
	s.who = who
	return s.find(s.asked)
}

// recorder is a gateway that takes reports.
type recorder struct {
	created api.Created
	reports []api.Submission
	asked   int // for the bundles again
}

func (g *recorder) client(t *testing.T) *api.Client {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("PUT /v1/workloads/{id}/submission", func(w http.ResponseWriter, r *http.Request) {
		var s api.Submission
		_ = json.NewDecoder(r.Body).Decode(&s)
		g.reports = append(g.reports, s)
		answer(w, g.created.Workload)
	})
	mux.HandleFunc("POST /v1/workloads/{id}/allocations", func(w http.ResponseWriter, _ *http.Request) {
		g.asked++
		answer(w, g.created)
	})
	return serveControl(t, mux)
}

// serveControl serves a control API of a test's own and returns a client of it.
func serveControl(t *testing.T, mux *http.ServeMux) *api.Client {
	t.Helper()
	mux.HandleFunc("GET /v1/info", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(api.Info{}) })
	socket := filepath.Join(shortDir(t), "s")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	client, _, err := api.Dial(t.Context(), socket)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// rig is a handover between a scripted scheduler and a recording gateway.
type rig struct {
	handover
	system  *scripted
	gateway *recorder
	errs    *bytes.Buffer
	run     string
}

func newRig(t *testing.T, system *scripted) rig {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.toml"), []byte(goodJob), 0o600))
	j, err := job.Load(filepath.Join(dir, "job.toml"), nil)
	require.NoError(t, err)
	request, err := site.Builtin().Resolve(j)
	require.NoError(t, err)
	w := api.Workload{ID: "wl_0123456789ab", Run: filepath.Join(request.RuntimeDir, "wl_0123456789ab"), Owner: "me", JobName: "openai4s-job-0123456789ab", Allocation: "alloc_0123456789ab", Phase: scheduler.Submitting}
	g := &recorder{created: api.Created{Workload: w, JobName: w.JobName}}
	errs := new(bytes.Buffer)
	return rig{
		handover: handover{
			app:     &app{err: &console{to: errs}},
			gateway: g.client(t), system: system,
			record:  record{Request: request, Agent: "/agent"},
			lookFor: 500 * time.Millisecond,
		},
		system: system, gateway: g, errs: errs, run: w.Run,
	}
}

func (r rig) outcomes() []scheduler.Outcome {
	var all []scheduler.Outcome
	for _, s := range r.gateway.reports {
		all = append(all, s.Outcome)
	}
	return all
}

var (
	job7     = scheduler.JobID{ID: "7"}
	noAnswer = func(int) ([]scheduler.JobID, error) { return nil, scheduler.ErrNoAnswer }
	nothing  = func(int) ([]scheduler.JobID, error) { return nil, nil }
	found    = func(int) ([]scheduler.JobID, error) { return []scheduler.JobID{job7}, nil }
	later    = func(asked int) ([]scheduler.JobID, error) {
		if asked < 2 {
			return nil, scheduler.ErrNoAnswer
		}
		return []scheduler.JobID{job7}, nil
	}
)

// A submission without an answer is looked up by name and owner before anything else, and is never made twice.
func TestCase01LostAnswerIsLookedUp(t *testing.T) {
	cases := []struct {
		name     string
		find     func(int) ([]scheduler.JobID, error)
		outcomes []scheduler.Outcome
		exit     int
	}{
		{"found", found, []scheduler.Outcome{scheduler.Unknown, scheduler.Existing}, 0},
		{"found after a lookup without an answer", later, []scheduler.Outcome{scheduler.Unknown, scheduler.Existing}, 0},
		{"not there yet", nothing, []scheduler.Outcome{scheduler.Unknown}, exitUnknown},
		{"the lookup has no answer", noAnswer, []scheduler.Outcome{scheduler.Unknown}, exitUnknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, &scripted{receipt: scheduler.Receipt{Outcome: scheduler.Unknown, Text: "Socket timed\x1b out"}, find: c.find})
			_, err := r.submit(t.Context(), r.gateway.created)
			require.Equal(t, c.outcomes, r.outcomes())
			require.Equal(t, 1, r.system.submitted, "submitted again")
			require.Equal(t, scheduler.Identity{UID: os.Getuid(), User: "me", Name: "openai4s-job-0123456789ab"}, r.system.who)
			require.Contains(t, r.errs.String(), "the scheduler's answer was lost (Socket timed\uFFFD out)")
			require.DirExists(t, r.run, "a job that may exist needs its RUN")
			if c.exit == 0 {
				require.NoError(t, err)
				require.Equal(t, job7, r.gateway.reports[1].Job)
				return
			}
			require.Equal(t, c.exit, decide(err).exit)
			require.Equal(t, "openai4s submit --resume wl_0123456789ab", decide(err).hint)
		})
	}
}

func TestResumeSettlesAnUnknownSubmission(t *testing.T) {
	cases := []struct {
		name      string
		find      func(int) ([]scheduler.JobID, error)
		submitted int
		outcomes  []scheduler.Outcome
		exit      int
	}{
		{"found", found, 0, []scheduler.Outcome{scheduler.Existing}, 0},
		{"surely not there", nothing, 1, []scheduler.Outcome{scheduler.Created}, 0},
		{"no answer", noAnswer, 0, nil, exitUnknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, &scripted{receipt: scheduler.Receipt{Outcome: scheduler.Created, Job: job7}, find: c.find})
			require.NoError(t, makePrivate(r.run))
			kept, err := json.Marshal(r.record)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(r.run, recordFile), kept, 0o600))
			_, err = r.resume(t.Context(), r.gateway.created.Workload, filepath.Dir(r.run))
			require.Equal(t, c.submitted, r.system.submitted)
			require.Equal(t, c.submitted, r.gateway.asked)
			require.Equal(t, c.outcomes, r.outcomes())
			require.Equal(t, c.exit, exitOfError(err))
		})
	}
}

func exitOfError(err error) int {
	if err == nil {
		return 0
	}
	return decide(err).exit
}

// What fails before the scheduler has a job is reported as rejected, and nothing is left.
func TestRejectedSubmissionLeavesNothing(t *testing.T) {
	cases := []struct {
		name   string
		system scripted
		exit   int
		says   string
		hint   string
		reason scheduler.Reason
	}{
		{"refused", scripted{receipt: scheduler.Receipt{Outcome: scheduler.Rejected, Text: "invalid account", Hint: "set account"}},
			exitRefused, "invalid account", "set account", scheduler.BackendRejected},
		{"limit that passes", scripted{receipt: scheduler.Receipt{Outcome: scheduler.Rejected, Text: "QOSMaxSubmitJobPerUserLimit", Later: true}},
			exitRefused, "QOSMax", "try again later", scheduler.BackendRejected},
		{"controller down", scripted{receipt: scheduler.Receipt{Outcome: scheduler.Rejected, Reason: scheduler.BackendUnavailable, Text: "no contact"}},
			exitNobody, "no contact", "", scheduler.BackendUnavailable},
		{"no such command", scripted{err: errors.New("exec: sbatch: not found")},
			exitNobody, "sbatch: not found", "", scheduler.BackendUnavailable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, &c.system)
			_, err := r.submit(t.Context(), r.gateway.created)
			f := decide(err)
			require.Equal(t, c.exit, f.exit)
			require.Contains(t, f.message, c.says)
			require.Contains(t, f.hint, c.hint)
			require.Equal(t, []scheduler.Outcome{scheduler.Rejected}, r.outcomes())
			require.Equal(t, c.reason, r.gateway.reports[0].Reason)
			require.NoDirExists(t, r.run)
		})
	}
}

func TestRunThatCantBeMadeIsTold(t *testing.T) {
	r := newRig(t, &scripted{})
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Dir(r.run)), 0o700))
	require.NoError(t, os.WriteFile(filepath.Dir(r.run), nil, 0o600)) // runtime_dir is a file
	_, err := r.submit(t.Context(), r.gateway.created)
	f := decide(err)
	require.Equal(t, exitBadFile, f.exit)
	require.Contains(t, f.hint, "runtime_dir")
	require.Zero(t, r.system.submitted)
	require.Equal(t, []scheduler.Outcome{scheduler.Rejected}, r.outcomes())
}

func TestAnIdThatIsNoneIsRefused(t *testing.T) {
	r := newRig(t, &scripted{})
	for _, id := range []scheduler.WorkloadID{"", "..", "../wl_0", "wl_/../../x"} {
		r.gateway.created.Workload.ID = id
		_, err := r.submit(t.Context(), r.gateway.created)
		require.ErrorContains(t, err, "no workload's id")
	}
	require.Zero(t, r.system.submitted)
}

func TestRunIsPrivateWhateverTheUmask(t *testing.T) {
	r := newRig(t, &scripted{receipt: scheduler.Receipt{Outcome: scheduler.Created, Job: job7}})
	_, err := r.submit(t.Context(), r.gateway.created)
	require.NoError(t, err)
	for name, mode := range map[string]os.FileMode{"": 0o700, recordFile: 0o600, scriptFile: 0o700} {
		info, err := os.Stat(filepath.Join(r.run, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
	}
	kept, err := readRecord(filepath.Dir(r.run), "wl_0123456789ab")
	require.NoError(t, err)
	require.Equal(t, r.record.Request.Workdir, kept.Request.Workdir)
	script, err := os.ReadFile(filepath.Join(r.run, scriptFile))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(script), "#!/bin/sh\n"))
}
