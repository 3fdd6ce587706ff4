package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/openai4s/hpc/credential/bundle"
	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/sbatch"
	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/systems"
)

// The files that submit keeps in RUN.
const (
	scriptFile = "job.sh"          // what the scheduler was handed, for whoever looks after the cluster
	recordFile = "submission.json" // what it was made from, for --resume and for recoveries; no secret is in it
)

// record is what a later process needs to hand a workload over once more.
type record struct {
	Request scheduler.Request `json:"request"`
	Agent   string            `json:"agent"`
}

// handover takes a workload that the gateway made to the scheduler.
type handover struct {
	app     *app
	gateway *api.Client
	system  scheduler.System
	record  record
	lookFor time.Duration // how long a job is looked for whose submission got no answer; 0: lookUpFor
}

// runDir is a workload's RUN: always a folder of this user's own runtime_dir, whatever a gateway says.
func runDir(runtimeDir string, id scheduler.WorkloadID) (string, error) {
	if !strings.HasPrefix(string(id), "wl_") || strings.Contains(string(id), "/") {
		return "", fmt.Errorf("%q is no workload's id", word(string(id)))
	}
	return filepath.Join(runtimeDir, string(id)), nil
}

// launcher is the program that starts the ranks, where the scheduler brings none.
func launcher(r scheduler.Request) ([]string, error) {
	if r.System != "local" {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's own path: %w", err)
	}
	return []string{self, systems.LaunchCommand}, nil
}

// submit writes the bundles, renders the script, hands it over and reports. What fails before the scheduler was
// asked is reported as rejected and removed, so that nothing stays behind.
func (h handover) submit(ctx context.Context, c api.Created) (api.Workload, error) {
	dir, err := runDir(h.record.Request.RuntimeDir, c.Workload.ID)
	if err != nil {
		return api.Workload{}, err
	}
	submission, err := h.prepare(dir, c)
	if err != nil {
		return h.withdraw(ctx, c.Workload, dir, scheduler.BootstrapFailed, err)
	}
	receipt, err := h.system.Submit(ctx, submission)
	if err != nil {
		f := &failure{exit: exitNobody, cause: err, message: fmt.Sprintf("submitting %s: %v", c.Workload.ID, err)}
		reason := scheduler.BackendUnavailable
		if errors.Is(err, scheduler.ErrUnsupported) {
			f.exit, reason = exitRefused, scheduler.BackendRejected
			f.hint = "look at scheduler and commands in the site file: they have to be of a scheduler that openai4s knows"
		}
		return h.withdraw(ctx, c.Workload, dir, reason, f)
	}
	return h.report(ctx, c.Workload, dir, receipt)
}

// report tells the gateway what the scheduler answered.
func (h handover) report(ctx context.Context, w api.Workload, dir string, r scheduler.Receipt) (api.Workload, error) {
	switch r.Outcome {
	case scheduler.Created, scheduler.Existing:
		return h.tell(ctx, w.ID, api.Submission{Outcome: r.Outcome, Job: r.Job, SubmitTime: time.Now().UTC(), Text: r.Text})
	case scheduler.Rejected:
		reason := r.Reason
		if reason == "" {
			reason = scheduler.BackendRejected
		}
		return h.withdraw(ctx, w, dir, reason, rejected(r))
	}
	if _, err := h.tell(ctx, w.ID, api.Submission{Outcome: scheduler.Unknown, Reason: scheduler.BackendSubmissionUnknown, Text: r.Text}); err != nil {
		return api.Workload{}, err
	}
	h.app.note("the scheduler's answer was lost (%s); looking the job up by its name", word(r.Text))
	return h.lookUp(ctx, w)
}

// tell reports with a few tries: the scheduler has the job, and only this process knows its id.
func (h handover) tell(ctx context.Context, id scheduler.WorkloadID, s api.Submission) (api.Workload, error) {
	w, err := retry(ctx, reportFor, func() (api.Workload, error) { return h.gateway.Report(ctx, id, s) })
	if err != nil {
		return api.Workload{}, &failure{exit: exitUnknown, cause: err,
			message: fmt.Sprintf("telling the gateway about job %s of %s: %v", s.Job, id, err),
			hint:    "openai4s submit --resume " + string(id)}
	}
	return w, nil
}

// withdraw reports that the scheduler has no job, removes RUN and returns why.
func (h handover) withdraw(ctx context.Context, w api.Workload, dir string, reason scheduler.Reason, why error) (api.Workload, error) {
	_, err := h.tell(ctx, w.ID, api.Submission{Outcome: scheduler.Rejected, Reason: reason, Text: neutral(why.Error(), true)})
	if err != nil {
		return api.Workload{}, errors.Join(why, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return api.Workload{}, errors.Join(why, fmt.Errorf("removing %s: %w", dir, err))
	}
	return api.Workload{}, why
}

// rejected is what the user is told of a refusal.
func rejected(r scheduler.Receipt) error {
	f := &failure{exit: exitRefused, message: "the scheduler refused the job: " + word(r.Text), hint: r.Hint}
	if r.Reason == scheduler.BackendUnavailable {
		f.exit, f.message = exitNobody, "the scheduler doesn't answer: "+word(r.Text)
	}
	if r.Later && f.hint == "" {
		f.hint = "the job is good: try again later"
	}
	return f
}

// prepare makes RUN and everything in it, and the submission.
func (h handover) prepare(dir string, c api.Created) (scheduler.Submission, error) {
	if err := makePrivate(dir); err != nil {
		return scheduler.Submission{}, runtimeDirError(err)
	}
	kept, err := json.MarshalIndent(h.record, "", "  ")
	if err != nil {
		return scheduler.Submission{}, fmt.Errorf("encoding the submission: %w", err)
	}
	if err := writePrivate(filepath.Join(dir, recordFile), kept, 0o600); err != nil {
		return scheduler.Submission{}, runtimeDirError(err)
	}
	for i, data := range c.Bundles {
		path := filepath.Join(dir, fmt.Sprintf("gang-%d.bundle", c.FirstEpoch+int64(i)))
		if err := bundle.Write(path, data); err != nil {
			return scheduler.Submission{}, runtimeDirError(fmt.Errorf("writing the bundle: %w", err))
		}
	}
	start, err := launcher(h.record.Request)
	if err != nil {
		return scheduler.Submission{}, err
	}
	submission, err := sbatch.Render(h.record.Request, scheduler.Launch{
		Workload:   c.Workload.ID,
		Allocation: c.Workload.Allocation,
		JobName:    c.JobName,
		Dir:        dir,
		Agent:      h.record.Agent,
		Launcher:   start,
		FirstEpoch: c.FirstEpoch,
	})
	if err != nil {
		return scheduler.Submission{}, fmt.Errorf("rendering the script: %w", err)
	}
	if err := writePrivate(filepath.Join(dir, scriptFile), submission.Script, 0o700); err != nil {
		return scheduler.Submission{}, runtimeDirError(err)
	}
	return submission, nil
}

// makePrivate makes a folder that nobody else can enter, also where a setgid parent or the umask says otherwise.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making RUN: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("making RUN: %w", err)
	}
	return nil
}

func writePrivate(path string, data []byte, mode os.FileMode) error {
	if err := renameio.WriteFile(path, data, mode, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// readRecord reads what an earlier process kept of a submission.
func readRecord(runtimeDir string, id scheduler.WorkloadID) (record, error) {
	dir, err := runDir(runtimeDir, id)
	if err != nil {
		return record{}, err
	}
	path := filepath.Join(dir, recordFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return record{}, &failure{exit: exitBadFile, cause: err,
			message: fmt.Sprintf("reading what was kept of the submission: %v", err),
			hint:    fmt.Sprintf("without it the workload can't be handed over: try again in a minute, when its command surely is gone, or openai4s cancel %s", id)}
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("reading %s: %w", path, err)
	}
	r.Request.RuntimeDir = runtimeDir
	return r, nil
}
