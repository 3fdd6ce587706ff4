package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// The exit codes. `wait` and `submit --wait` end with the command's own code (128 + signal), see exitOf.
const (
	exitFailed    = 1   // no command's own code, and none of the below
	exitCancelled = 20  // the workload was cancelled
	exitUsage     = 80  // the command line
	exitBadFile   = 81  // the job file or the site file
	exitRefused   = 82  // the scheduler refused
	exitNobody    = 83  // the daemon or the scheduler doesn't answer
	exitForbidden = 84  // not allowed
	exitNoSuch    = 85  // no such workload
	exitUnknown   = 86  // it isn't known whether the job was submitted
	exitDetached  = 130 // Ctrl-C; the work goes on
)

// codes are the words of the exit codes in JSON.
var codes = map[int]string{
	exitFailed:    "failed",
	exitUsage:     "usage",
	exitBadFile:   "bad_file",
	exitRefused:   "refused",
	exitNobody:    "unavailable",
	exitForbidden: "not_allowed",
	exitNoSuch:    "not_found",
	exitUnknown:   "submission_unknown",
	exitDetached:  "interrupted",
}

// errInterrupted is the cause of a context that Ctrl-C ended.
var errInterrupted = errors.New("interrupted")

// failure is an error whose exit code is known where it is made.
type failure struct {
	exit    int
	message string
	hint    string // what to do about it; may be empty
	cause   error
}

func (f *failure) Error() string { return f.message }
func (f *failure) Unwrap() error { return f.cause }

// ended is a workload's end, which was shown already: the process ends with its code and says no more.
type ended struct{ code int }

func (e *ended) Error() string { return fmt.Sprintf("the workload ended with %d", e.code) }

// badFile marks an error of the job file or the site file.
func badFile(err error) error {
	return &failure{exit: exitBadFile, message: err.Error(), hint: hintOf(err), cause: err}
}

// hintOf is the remedy that an error carries, if any.
func hintOf(err error) string {
	var h interface{ Remedy() string }
	if errors.As(err, &h) {
		return h.Remedy()
	}
	return ""
}

// finish shows an error and returns the process's exit code: the one place that decides it.
func (a *app) finish(err error) int {
	if err == nil {
		return 0
	}
	if end := new(ended); errors.As(err, &end) {
		return end.code
	}
	f := decide(err)
	a.showFailure(f)
	return f.exit
}

// decide finds the exit code and the hint of any error.
func decide(err error) failure {
	var known *failure
	var answer *api.Error
	switch {
	case errors.As(err, &known):
		f := *known
		f.message = err.Error()
		return f
	case errors.As(err, &answer):
		return failure{exit: exitOfAnswer(answer), message: err.Error(), hint: answer.Hint}
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return failure{exit: exitDetached, message: errInterrupted.Error()}
	case errors.Is(err, api.ErrNobody), errors.Is(err, api.ErrWrongKey), errors.Is(err, scheduler.ErrNoAnswer):
		return failure{exit: exitNobody, message: err.Error()}
	case errors.Is(err, scheduler.ErrNotOurs):
		return failure{exit: exitForbidden, message: err.Error()}
	case errors.Is(err, scheduler.ErrNoSuchJob):
		return failure{exit: exitNoSuch, message: err.Error()}
	case errors.Is(err, scheduler.ErrUnsupported):
		return failure{exit: exitRefused, message: err.Error()}
	}
	return failure{exit: exitFailed, message: err.Error()}
}

// exitOfAnswer maps the gateway's own words.
func exitOfAnswer(e *api.Error) int {
	switch e.Code {
	case "not_found":
		return exitNoSuch
	case "not_allowed", "limit":
		return exitForbidden
	case "bad_request", "too_wide":
		return exitBadFile
	case "unavailable":
		return exitNobody
	}
	return exitFailed
}

// exitOf is the exit code of a workload that is over.
func exitOf(w api.Workload) int {
	switch {
	case w.Phase == scheduler.Completed:
		return 0
	case w.Phase == scheduler.Cancelled:
		return exitCancelled
	case w.Result != nil && w.Result.ExitCode > 0 && w.Result.ExitCode < 256:
		return w.Result.ExitCode
	}
	return exitFailed
}

// endOf is what a command that waited returns.
func endOf(w api.Workload) error {
	if code := exitOf(w); code != 0 {
		return &ended{code}
	}
	return nil
}
