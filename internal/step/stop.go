package step

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// stopBy is the cause of a context that a signal ended.
type stopBy struct{ signal os.Signal }

func (s stopBy) Error() string   { return fmt.Sprintf("stopped on request (%s)", s.signal) }
func (s stopBy) Is(e error) bool { return e == ErrStopped }

// watchSignals gives a context that the first SIGTERM or SIGINT ends, which closes the connection in flight.
// Further ones change nothing: what is left to do then is the receipt. As PID 1 a process without a handler never
// hears of SIGTERM at all (section 14).
//
// SIGPIPE is caught so that a reader of our output that goes away doesn't end the run before its marker. It is
// caught and not ignored because a command would inherit the latter.
func watchSignals(ctx context.Context, print *streams) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			if s == syscall.SIGPIPE || ctx.Err() != nil {
				continue
			}
			cancel(stopBy{s})
			print.warn("stop requested (%s); leaving a marker and going", s)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel(nil)
	}
}
