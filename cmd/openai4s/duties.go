package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// What a gateway that can't do it itself wants the owner's command to do (api.Workload.Wants).
const (
	wantsObserve = "observe" // ask the scheduler about the job
	wantsCancel  = "cancel"  // cancel the scheduler's job
	wantsReports = "reports" // read the ranks' exit files in RUN
	wantsSubmit  = "submit"  // hand the next allocation to the scheduler
)

const (
	// dutyPause and dutyPauseMost bound the pause between two rounds of duties while waiting.
	dutyPause     = 2 * time.Second
	dutyPauseMost = 30 * time.Second
)

// duty does for the gateway what only the owner can.
type duty struct {
	app     *app
	gateway *api.Client
	system  scheduler.System
}

// tend does the duties of one workload once, for a command that shows it. What goes wrong is told and changes nothing.
func tend(ctx context.Context, a *app, gateway *api.Client, system scheduler.System, w api.Workload) api.Workload {
	after, err := duty{a, gateway, system}.perform(ctx, w)
	if err != nil && ctx.Err() == nil {
		a.note("%s: %v", w.ID, err)
	}
	return after
}

// perform does what the gateway wants of the owner and returns the workload as it is afterwards.
func (d duty) perform(ctx context.Context, w api.Workload) (api.Workload, error) {
	if w.UID != os.Getuid() {
		return w, nil
	}
	if w.Phase == scheduler.Submitting && w.Job.ID == "" && len(w.Wants) == 0 && time.Since(w.CreatedAt) > strayAfter {
		return d.findStray(ctx, w)
	}
	if len(w.Wants) == 0 {
		return w, nil
	}
	var failed []error
	if slices.Contains(w.Wants, wantsCancel) && w.Job.ID != "" {
		err := d.system.Cancel(ctx, jobID(w), identity(w))
		if err != nil && !errors.Is(err, scheduler.ErrNoSuchJob) {
			failed = append(failed, fmt.Errorf("cancelling job %s: %w", jobID(w), err))
		}
	}
	report, err := d.look(ctx, w)
	if err != nil {
		failed = append(failed, err)
	}
	if report.Observation != nil || report.Absent || report.RunRead || len(report.Exits) > 0 {
		after, err := d.gateway.ReportObservation(ctx, w.ID, report)
		if err != nil {
			return w, errors.Join(append(failed, fmt.Errorf("reporting: %w", err))...)
		}
		w = after
	}
	if slices.Contains(w.Wants, wantsSubmit) {
		after, err := d.submitNext(ctx, w)
		if err != nil {
			return w, errors.Join(append(failed, err)...)
		}
		w = after
	}
	return w, errors.Join(failed...)
}

// look asks the scheduler and reads RUN, as far as the gateway wants it.
func (d duty) look(ctx context.Context, w api.Workload) (api.ObservationReport, error) {
	var report api.ObservationReport
	if slices.Contains(w.Wants, wantsReports) {
		exits, err := api.ReadReports(w.Run, w.Epoch)
		report.Exits = exits
		if err != nil {
			return report, err
		}
		report.RunRead = true
	}
	if !observes(w) {
		return report, nil
	}
	job := jobID(w)
	answer, err := d.system.Observe(ctx, []scheduler.JobID{job})
	if err != nil {
		return report, fmt.Errorf("asking the scheduler about job %s: %w", job, err)
	}
	if err := answer.Unanswered[job]; err != nil {
		return report, fmt.Errorf("asking the scheduler about job %s: %w", job, err)
	}
	seen, known := answer.Known[job]
	if known {
		report.Observation = &seen
	} else {
		report.Absent = true
	}
	return report, nil
}

// submitNext hands over the allocation that replaces a lost one.
func (d duty) submitNext(ctx context.Context, w api.Workload) (api.Workload, error) {
	kept, err := readRecord(filepath.Dir(w.Run), w.ID)
	if err != nil {
		return w, err
	}
	d.app.note("%s lost its allocation; submitting the next", w.ID)
	h := handover{app: d.app, gateway: d.gateway, system: d.system, record: kept}
	created, err := d.gateway.Allocate(ctx, w.ID)
	if err != nil {
		return w, fmt.Errorf("asking for the next allocation: %w", err)
	}
	after, err := h.submit(ctx, created)
	if err != nil {
		return w, err
	}
	return after, nil
}

// strayAfter is how old a workload without a job must be before another command than the one that submits it looks
// for the job: a command that still runs reports it itself.
const strayAfter = time.Minute

// findStray looks for the job of a workload whose submitting command died before it reported one. Nothing is
// submitted here: that is for submit --resume.
func (d duty) findStray(ctx context.Context, w api.Workload) (api.Workload, error) {
	after, err := handover{app: d.app, gateway: d.gateway, system: d.system}.settle(ctx, w)
	switch {
	case errors.Is(err, errNotThere):
		return w, fmt.Errorf("%w; openai4s submit --resume %s hands it over again", err, w.ID)
	case err != nil:
		return w, err // and not an empty one: it is shown
	}
	return after, nil
}

// observes tells whether the scheduler is to be asked about the workload's job, by this user.
func observes(w api.Workload) bool {
	return w.UID == os.Getuid() && slices.Contains(w.Wants, wantsObserve) && w.Job.ID != ""
}

func jobID(w api.Workload) scheduler.JobID {
	return scheduler.JobID{Cluster: w.Job.Cluster, ID: w.Job.ID}
}

// duties does the duties of a workload that is waited for, again and again.
type duties struct {
	latest chan api.Workload
	cancel context.CancelFunc
	done   chan struct{}
}

func startDuties(ctx context.Context, o waiting) *duties {
	ctx, cancel := context.WithCancel(ctx)
	d := &duties{latest: make(chan api.Workload, 1), cancel: cancel, done: make(chan struct{})}
	go d.run(ctx, o)
	return d
}

// update hands over the newest state; an older one that nobody took is dropped.
func (d *duties) update(w api.Workload) {
	select {
	case <-d.latest:
	default:
	}
	d.latest <- w
}

// stop ends the rounds; one that is under way is waited for.
func (d *duties) stop() {
	d.cancel()
	<-d.done
}

func (d *duties) run(ctx context.Context, o waiting) {
	defer close(d.done)
	var w api.Workload
	var said string
	pause := dutyPause
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-d.latest:
			if !slices.Equal(now.Wants, w.Wants) { // something new is wanted: at once
				pause = dutyPause
				due.Reset(0)
			}
			w = now
		case <-due.C:
			if len(w.Wants) > 0 || w.Phase == scheduler.Submitting {
				_, err := duty{o.app, o.conn.gateway(), o.system}.perform(ctx, w)
				if err != nil && err.Error() != said && ctx.Err() == nil && !o.quiet {
					said = err.Error()
					o.app.note("%s: %v", w.ID, err)
				}
				pause = min(pause*3/2, dutyPauseMost)
			}
			due.Reset(pause)
		}
	}
}
