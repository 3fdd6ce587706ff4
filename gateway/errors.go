package gateway

import "errors"

// ErrNoWorkload is returned where no workload has the id, or the caller may not know of it.
var ErrNoWorkload = errors.New("no such workload")

// ErrNewerStore is returned for a store that a newer version of the daemon wrote.
var ErrNewerStore = errors.New("the store was written by a newer version")

// errUndecided closes a connection unanswered: whether its epoch counts can't be told yet, and the agent tries again.
var errUndecided = errors.New("whether this epoch has begun can't be told yet")

// errStopping closes a connection unanswered while the gateway stops.
var errStopping = errors.New("the gateway is stopping")

// errEvicted is of a pending peer whose slot somebody else needed; its connection is closed.
var errEvicted = errors.New("evicted: another source needed the slot")
