package wire

import "errors"

// ErrHello is returned for a hello line whose announcement can't be read.
var ErrHello = errors.New("malformed hello")

// ErrHelloTooLong is returned for a line over MaxHello bytes.
var ErrHelloTooLong = errors.New("the hello line is too long")

// ErrFrameTooLong is returned for a frame whose announced length is over MaxFrame, before any memory is taken.
var ErrFrameTooLong = errors.New("the frame is too long")

// ErrAnswer is returned for an answer line that can't be read.
var ErrAnswer = errors.New("malformed answer")
