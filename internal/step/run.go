package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// work is what a step does between its inputs and its receipt: the copy work or a command.
type work func(ctx context.Context, r *run) error

// run is one attempt (section 1).
type run struct {
	*streams
	getenv   func(string) string
	creds    *credentials
	client   *client
	staging  staging
	block    []byte // the one buffer that bytes move through
	scratch  string // a folder of our own, 0700
	manifest manifest
	identity identity
	inputs   []input // of the first envelope; where they lie is asked of the current one
	names    *nameSet
	made     *inventory
	report   *report
	reported reportState
	sealed   bool // the marker is being written, or was: nothing else is any more
}

type reportState int

const (
	notReported reportState = iota
	reportBegun
)

// attempt runs a step to its exit code. Whatever happens after the envelope was read ends in a marker.
func attempt(ctx context.Context, r *run, do work) int {
	path, disagree := credentialsPath(r.getenv)
	if disagree {
		r.warn("LSPO_CREDENTIALS_FILE and LSPO_CREDENTIALS name different files; LSPO_CREDENTIALS_FILE counts")
	}
	r.creds.path = path
	first, err := r.creds.current()
	if err != nil {
		r.warn("%v", err)
		return exitCode(err)
	}
	r.inputs = first.inputs
	r.names = newNameSet(first.mode == modeLocal)
	err = r.perform(ctx, do)
	return r.finish(ctx, err)
}

func (r *run) perform(ctx context.Context, do work) (err error) {
	r.progress(0, "reading the job")
	if r.manifest, err = r.fetchManifest(ctx); err != nil {
		return err
	}
	if r.identity, err = identify(r.manifest, r.getenv); err != nil {
		return err
	}
	r.say("execution %d, attempt %d, generation %d: %d inputs", r.identity.ExecutionID, r.identity.Attempt,
		r.identity.Generation, len(r.inputs))
	r.report.params = r.manifest.params
	r.report.summary["attempt"] = r.identity.Attempt
	if err := do(ctx, r); err != nil {
		return err
	}
	if err := stopped(ctx); err != nil {
		return err
	}
	r.progress(0.97, "reporting")
	if err := r.writeReport(ctx); err != nil {
		return naming(err, "writing %s", resultName)
	}
	return stopped(ctx) // section 14: once more before a success marker
}

// finish decides how the run ended, says so and writes the receipt. Status and code are never revised after.
func (r *run) finish(ctx context.Context, err error) int {
	code, status, text := decide(ctx, err)
	if text != "" {
		text = cut(r.text(text), maxError)
		r.warn("%s", text)
	}
	if status != Succeeded && r.reported == notReported {
		r.reportFailure(ctx, status)
	}
	if markerErr := r.writeMarker(ctx, status, code, text); markerErr != nil {
		var refused *markerRefused
		if errors.As(markerErr, &refused) {
			r.warn("no marker: %v", markerErr)
			if status == Succeeded || refused.unidentified && status != Cancelled {
				return ExitPermanent
			}
			return code
		}
		r.warn("the marker could not be confirmed: %v", markerErr)
	}
	if code == ExitOK {
		r.progress(1, "done")
	}
	return code
}

func decide(ctx context.Context, err error) (code int, status Status, text string) {
	if stop := stopped(ctx); stop != nil {
		return ExitCancelled, Cancelled, context.Cause(ctx).Error()
	}
	code = exitCode(err)
	switch code {
	case ExitOK:
		return code, Succeeded, ""
	case ExitCancelled:
		return code, Cancelled, err.Error()
	}
	return code, Failed, err.Error()
}

// reportFailure writes the report of a run that failed, at best: its own failure is one line and never costs the
// marker. A stopped run doesn't try (section 11).
func (r *run) reportFailure(ctx context.Context, status Status) {
	if status == Cancelled {
		r.warn("no %s for this run: it was stopped before it was written", resultName)
		return
	}
	r.report.summary["status"] = status
	err := r.writeReport(ctx)
	switch {
	case errors.Is(err, ErrStopped):
		r.warn("no %s for this run: it was stopped before it was written", resultName)
	case err != nil:
		r.warn("could not write %s: %v", resultName, err)
	}
}

// writeReport uploads result.json under its own port. On the way to success it is recorded before, like every
// object; after a failure only once it was accepted (section 6).
func (r *run) writeReport(ctx context.Context) error {
	r.report.metrics["files"] = len(r.made.objects)
	r.report.metrics["total_bytes"] = r.made.bytes()
	data, err := r.report.encode()
	if err != nil {
		return err
	}
	m, err := measure(nil, bytesSource(data).reader(), r.block, func() error { return nil })
	if err != nil {
		return err
	}
	o := Object{Relpath: resultName, SHA256: m.sha256, Size: m.size}
	failed := r.report.summary["status"] != nil
	if err := stopped(ctx); err != nil {
		return err // before it is recorded: a stopped run names what it had begun, and no more
	}
	if !failed {
		r.made.record(o, reportPort)
	}
	r.reported = reportBegun
	err = r.write(ctx, resultName, bytesSource(data))
	if failed && err == nil {
		r.made.record(o, reportPort)
	}
	return err
}

// publish uploads a file as relpath and claims it for the ports.
func (r *run) publish(ctx context.Context, relpath, path string, m measured, ports ...string) error {
	if m.size > maxObject {
		return tooLarge(relpath, m.size)
	}
	if err := stopped(ctx); err != nil {
		return err
	}
	r.made.record(Object{Relpath: relpath, SHA256: m.sha256, Size: m.size}, ports...)
	return naming(r.write(ctx, relpath, fileSource{path: path, length: m.size}), "writing %s", relpath)
}

func tooLarge(name string, size int64) error {
	return permanentf("%s has %d bytes, over the %d an object may have", name, size, maxObject)
}

// write is the one way into the staging area. Once the marker's turn has come it is open to nothing else.
func (r *run) write(ctx context.Context, relpath string, src source) error {
	if r.sealed {
		return permanentf("%s comes after the marker", relpath)
	}
	if err := stopped(ctx); err != nil {
		return err
	}
	return r.creds.renewing(func(e *envelope) error {
		return r.staging.upload(ctx, e, relpath, src, r.client.upload)
	})
}

// markerRefused is a marker that this step doesn't compose.
type markerRefused struct {
	err          error
	unidentified bool
}

func (m *markerRefused) Error() string { return m.err.Error() }
func (m *markerRefused) Unwrap() error { return m.err }

// writeMarker writes the receipt, once. It has a deadline of its own, and a stop doesn't abandon it (section 10).
func (r *run) writeMarker(ctx context.Context, status Status, code int, text string) error {
	if r.sealed {
		return permanentf("the marker was written before")
	}
	r.sealed = true
	id, err := identify(r.manifest, r.getenv)
	if err != nil {
		return &markerRefused{err: err, unidentified: true}
	}
	m := Marker{
		SchemaVersion: schemaVersion, ExecutionID: id.ExecutionID, Attempt: id.Attempt, Generation: id.Generation,
		IdempotencyKey: id.IdempotencyKey, Status: status, ExitCode: code,
		Objects: r.made.objects, ProducedPorts: r.made.ports,
	}
	if text != "" {
		m.Error = &text
	}
	data, err := m.encode(maxMarker)
	if err != nil {
		return &markerRefused{err: err}
	}
	current, err := r.creds.reload()
	if err != nil {
		r.warn("%v; the marker is written with the envelope held", err)
		current = r.creds.held
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markerDeadline)
	defer cancel()
	return r.creds.renewingFrom(current, func(e *envelope) error {
		return r.staging.upload(ctx, e, markerName, bytesSource(data), markerDeadline)
	})
}

// makeScratch makes the folder that inputs lie in while they are worked on.
func (r *run) makeScratch() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "openai4s-step-")
	if err != nil {
		return nil, fmt.Errorf("making a scratch folder: %w", pathless(err))
	}
	r.scratch = dir
	return func() { _ = os.RemoveAll(dir) }, nil
}

func (r *run) scratchFile() string { return filepath.Join(r.scratch, "input") }
