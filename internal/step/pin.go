package step

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Pinned is an input of a job as it was when the job was submitted.
type Pinned struct {
	Name   string // as the job file says it; what messages call it
	Path   string // absolute
	SHA256 string // 64 lower-case hex digits
	Size   int64  // bytes
}

// Pin hashes a file as a job's input, streamed, its page cache given back. progress, which may be nil, is called as
// bytes are read, with total the file's size when it was opened. A file that grows or shrinks meanwhile is an error.
func Pin(ctx context.Context, path string, progress func(done, total int64)) (sha256 string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, fmt.Errorf("pinning an input: %w", err)
	}
	r := &frugalReader{f: f}
	defer r.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, fmt.Errorf("pinning %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return "", 0, fmt.Errorf("pinning %s: it is not a regular file; name files one by one", path)
	}
	reader := io.Reader(r)
	if progress != nil {
		reader = &watchedReader{r: r, total: info.Size(), progress: progress}
	}
	m, err := measure(nil, reader, make([]byte, blockSize), func() error { return ended(ctx) })
	if err != nil {
		return "", 0, fmt.Errorf("pinning %s: %w", path, err)
	}
	if m.size != info.Size() {
		return "", 0, fmt.Errorf("pinning %s: it changed from %d to %d bytes meanwhile", path, info.Size(), m.size)
	}
	return m.sha256, m.size, nil
}

type watchedReader struct {
	r           io.Reader
	done, total int64
	progress    func(done, total int64)
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.done += int64(n)
	if n > 0 {
		w.progress(w.done, w.total)
	}
	return n, err
}

// Check holds a job's inputs against what was pinned, on the side where they are used. The first that differs is
// an error that wraps ErrChanged and names the input and both hashes (or sizes).
func Check(ctx context.Context, inputs []Pinned) error {
	block := make([]byte, blockSize)
	for _, in := range inputs {
		got, err := measureFile(ctx, in.Path, block)
		if err != nil {
			return fmt.Errorf("checking input %s: %w", in.Name, err)
		}
		if got.sha256 != in.SHA256 {
			return fmt.Errorf("%w: %s (%d bytes) hashes to %s, the job pinned %s (%d bytes)",
				ErrChanged, in.Name, got.size, got.sha256, in.SHA256, in.Size)
		}
	}
	return nil
}
