package bundle

import "errors"

// A bundle that isn't there is an fs.ErrNotExist. The others name the path and what to do.
var (
	// ErrFormat is returned for what isn't a bundle of this format, or can't become one.
	ErrFormat = errors.New("not a usable bundle")

	// ErrRank is returned where the bundle has no such rank.
	ErrRank = errors.New("no such rank in the bundle")

	// ErrKind is returned for anything but a regular file: links, pipes, folders.
	ErrKind = errors.New("bundle is not a regular file")

	// ErrOwner is returned where somebody else owns the file.
	ErrOwner = errors.New("bundle belongs to another user")

	// ErrMode is returned where the mode lets group or others in.
	ErrMode = errors.New("bundle is open to others by its mode")

	// ErrACL is returned where an access control list lets others in.
	ErrACL = errors.New("bundle is open to others by its access control list")
)
