package scheduler

import "errors"

// ErrNoAnswer is returned when the scheduler could not be asked or did not say: a command timed out, exited
// with a connection error or printed what can't be read. It is never to be taken for "absent".
var ErrNoAnswer = errors.New("the scheduler gave no answer")

// ErrNotOurs is returned by Cancel when the job's user or name is not the one meant.
var ErrNotOurs = errors.New("the job is not the one meant")

// ErrNoSuchJob is returned by Cancel when neither queue nor accounting has the job, or it is over.
var ErrNoSuchJob = errors.New("no such job")

// ErrUnsupported is returned for a scheduler, or a version of it, that is not supported.
var ErrUnsupported = errors.New("this scheduler is not supported")
