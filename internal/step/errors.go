package step

import (
	"context"
	"errors"
	"fmt"
)

// Exit codes of an external step (section 13). Any other code counts as transient.
const (
	ExitOK         = 0
	ExitTransient  = 1  // a later attempt may succeed
	ExitPermanent  = 10 // no attempt will succeed
	ExitCancelled  = 20
	ExitContention = 30
)

var (
	// ErrStopped is the cause of every failure that a stop request brought about.
	ErrStopped = errors.New("stopped on request")

	// ErrChanged is returned by Check for an input that isn't what was pinned.
	ErrChanged = errors.New("input is not what was pinned")
)

// failure is an error that knows the exit code it deserves. Its text is safe to show: makers never put a URL in it.
type failure struct {
	code    int
	expired bool // the store refused the credential; a renewed envelope may help (section 8)
	err     error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func permanentf(format string, args ...any) error {
	return &failure{code: ExitPermanent, err: fmt.Errorf(format, args...)}
}

func transientf(format string, args ...any) error {
	return &failure{code: ExitTransient, err: fmt.Errorf(format, args...)}
}

// naming puts what was being done before err and keeps its class.
func naming(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// exitCode classifies err. What nobody classified is transient, the contract's safe side (section 13).
func exitCode(err error) int {
	var f *failure
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrStopped):
		return ExitCancelled
	case errors.As(err, &f):
		return f.code
	default:
		return ExitTransient
	}
}

func isExpired(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.expired
}

// stopped returns ErrStopped once ctx was cancelled by a stop, nil otherwise.
func stopped(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrStopped) {
		return ErrStopped
	}
	return nil
}
