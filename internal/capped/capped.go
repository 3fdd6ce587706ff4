// Package capped bounds what is kept of another program's output.
package capped

import "bytes"

// Buffer keeps the first Most bytes written to it and takes the rest without keeping it, so that the writer isn't
// blocked. It has no ReadFrom, through which a copy would pass the bound by.
type Buffer struct {
	Most int  // bytes
	Over bool // more was written

	kept bytes.Buffer
}

// Write never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	if room := b.Most - b.kept.Len(); len(p) > room {
		b.Over = true
		b.kept.Write(p[:room])
	} else {
		b.kept.Write(p)
	}
	return len(p), nil
}

// Bytes returns what was kept, valid until the next write.
func (b *Buffer) Bytes() []byte { return b.kept.Bytes() }

// String returns what was kept.
func (b *Buffer) String() string { return b.kept.String() }
