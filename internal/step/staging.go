package step

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// source is what an object's bytes are read from. It may be opened twice: once for each credential it is sent with.
type source interface {
	open() (io.ReadCloser, error)
	size() int64
}

type bytesSource []byte

func (b bytesSource) open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
func (b bytesSource) reader() io.Reader            { return bytes.NewReader(b) }
func (b bytesSource) size() int64                  { return int64(len(b)) }

// fileSource sends length bytes of a file, however long it is by then.
type fileSource struct {
	path   string
	length int64
}

func (f fileSource) open() (io.ReadCloser, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, transientf("reading an output: %w", pathless(err))
	}
	return &frugalReader{f: file}, nil
}

func (f fileSource) size() int64 { return f.length }

// staging is the area this attempt writes to.
type staging struct {
	client *client
	block  []byte
}

// upload writes one object with one envelope. answerWithin is the silence allowed until the store answers.
func (s *staging) upload(ctx context.Context, e *envelope, relpath string, src source, answerWithin time.Duration) error {
	if err := CheckRelpath(relpath); err != nil {
		return err
	}
	if src.size() > maxObject {
		return tooLarge(relpath, src.size())
	}
	r, err := src.open()
	if err != nil {
		return err
	}
	defer r.Close()
	if e.mode == modeLocal {
		return s.uploadLocal(ctx, e.localPath, relpath, r, src.size())
	}
	body, err := newFormBody(e.post, relpath, r, src.size())
	if err != nil {
		return err
	}
	return s.client.post(ctx, e.post.url, body.contentType, body, body.length, answerWithin)
}

func (s *staging) uploadLocal(ctx context.Context, dir, relpath string, r io.Reader, size int64) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return transientf("making the staging folder: %w", pathless(err))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return transientf("opening the staging folder: %w", pathless(err))
	}
	defer root.Close()
	err = placeFile(ctx, root, relpath, exactly(r, size), s.block)
	var own *failure
	if err == nil || errors.As(err, &own) || errors.Is(err, ErrStopped) {
		return err
	}
	return transientf("writing to the staging folder: %w", pathless(err))
}
