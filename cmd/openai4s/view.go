package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// view shows a workload's way on standard error.
type view interface {
	update(api.Workload)
	// weave returns false, or puts lines of the job's output above what moves.
	weave(p []byte) bool
	// close ends what moves and, where the workload is over, tells how.
	close(last api.Workload, over bool)
}

// silent shows nothing.
type silent struct{}

func (silent) update(api.Workload)      {}
func (silent) weave([]byte) bool        { return false }
func (silent) close(api.Workload, bool) {}

// linePause is the least time between two lines of the same phase: a gang of thousands forms in as many steps.
const linePause = time.Second

// lines tells changes in a line each, for logs and pipes: a new phase at once, what happens within one now and then.
type lines struct {
	app *app

	mu    sync.Mutex
	phase scheduler.Phase
	text  string // the newest
	said  string // the last that was told
	timer *time.Timer
}

func (l *lines) update(w api.Workload) {
	if w.Phase.Terminal() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = string(w.ID) + " " + stepText(w)
	switch {
	case w.Phase != l.phase:
		l.phase = w.Phase
		l.tell()
	case l.timer == nil:
		l.timer = time.AfterFunc(linePause, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.tell()
		})
	}
}

// tell says the newest, if it wasn't said yet.
func (l *lines) tell() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.text != l.said {
		l.said = l.text
		l.app.note("%s", l.text)
	}
}

func (l *lines) weave([]byte) bool { return false }

func (l *lines) close(last api.Workload, over bool) {
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.text = l.said // a timer that fired meanwhile finds nothing to tell
	l.mu.Unlock()
	if over {
		l.app.note("%s", endText(last))
	}
}

// barUnits are the steps of the bar: thousandths of the progress fraction.
const barUnits = 1000

// bar is the live view on a terminal.
type bar struct {
	app      *app
	progress *mpb.Progress
	bar      *mpb.Bar

	mu   sync.Mutex
	text string
}

func newBar(a *app, w api.Workload) *bar {
	b := &bar{app: a, text: stepText(w)}
	b.progress = mpb.New(mpb.WithOutput(a.err.to), mpb.WithWidth(64), mpb.WithRefreshRate(100*time.Millisecond))
	b.bar = b.progress.AddBar(barUnits,
		mpb.PrependDecorators(decor.Name(string(w.ID)+" ")),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return b.now() })),
		mpb.BarFillerTrim(),
	)
	a.err.writeTo(b.progress) // what else is told appears above the bar
	return b
}

func (b *bar) now() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return " " + b.text
}

func (b *bar) update(w api.Workload) {
	b.mu.Lock()
	b.text = stepText(w)
	b.mu.Unlock()
	b.bar.SetCurrent(barAt(w))
}

// weave puts output above the bar, where both are on one terminal.
func (b *bar) weave(p []byte) bool {
	if !b.app.shared {
		return false
	}
	_, err := b.progress.Write(p)
	return err == nil
}

func (b *bar) close(last api.Workload, over bool) {
	b.app.err.writeTo(nil)
	b.bar.Abort(true)
	b.progress.Wait()
	if over {
		b.app.note("%s", endText(last))
	}
}

// barAt is how far the bar is: before the release, the share of ranks that are there; then the job's own progress.
func barAt(w api.Workload) int64 {
	switch {
	case w.Phase == scheduler.Active && w.Progress != nil:
		return int64(min(max(w.Progress.Fraction, 0), 1) * (barUnits - 1)) // never full: a full bar would end
	case w.Phase == scheduler.Granted && w.Size > 0:
		return int64(w.Ranks.Live) * (barUnits - 1) / int64(w.Size)
	case w.Phase == scheduler.Releasing:
		return barUnits - 1
	}
	return 0
}

// stepText says where a live workload is: its phase, then what tells most in that phase.
func stepText(w api.Workload) string {
	parts := []string{string(w.Phase)}
	switch w.Phase {
	case scheduler.Granted:
		if w.Ranks.Text != "" {
			parts = append(parts, word(w.Ranks.Text))
		}
	case scheduler.Active:
		switch {
		case w.Progress != nil:
			text := fmt.Sprintf("%.0f %%", 100*min(max(w.Progress.Fraction, 0), 1))
			if w.Progress.Phase != "" {
				text += " " + word(w.Progress.Phase)
			}
			parts = append(parts, text)
		case w.Ranks.Text != "":
			parts = append(parts, word(w.Ranks.Text))
		}
		if len(w.Ranks.Silent) > 0 {
			parts = append(parts, fmt.Sprintf("silent %v", w.Ranks.Silent))
		}
	case scheduler.Pending, scheduler.Submitting:
		if w.Scheduler != "" {
			parts = append(parts, word(w.Scheduler))
		}
	}
	if w.Message != "" && !w.Phase.Terminal() {
		parts = append(parts, word(w.Message))
	}
	return strings.Join(parts, "  ")
}

// endText is the last line: "wl_… FAILED COMMAND_FAILED: rank 2 on node3 exited with 3".
func endText(w api.Workload) string {
	text := string(w.ID) + " " + string(w.Phase)
	if w.Reason != "" {
		text += " " + string(w.Reason)
	}
	if why := whyText(w); why != "" {
		text += ": " + why
	}
	if w.Phase == scheduler.Completed && !w.StartedAt.IsZero() && !w.EndedAt.IsZero() {
		text += " in " + w.EndedAt.Sub(w.StartedAt).Round(100*time.Millisecond).String()
	}
	return text
}

// whyText names the rank, the host and the exit code that decided, or what the gateway says.
func whyText(w api.Workload) string {
	if w.Message != "" || w.Result == nil || w.Reason != scheduler.CommandFailed {
		return word(w.Message)
	}
	text := fmt.Sprintf("rank %d", w.Result.Rank)
	if w.Result.Host != "" {
		text += " on " + word(w.Result.Host)
	}
	if w.Result.Signal != 0 {
		return text + fmt.Sprintf(" was ended by signal %d", w.Result.Signal)
	}
	return text + fmt.Sprintf(" exited with %d", w.Result.ExitCode)
}

// sizeText is "4 nodes × 2 ranks".
func sizeText(w api.Workload) string {
	nodes := max(w.Nodes, 1)
	return fmt.Sprintf("%s × %s", count(nodes, "node"), count(w.Size/nodes, "rank"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
