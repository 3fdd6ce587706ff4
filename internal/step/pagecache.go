package step

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// frugalReader gives the page cache of a file back as it is read (section 16): cached pages count against the
// container's memory like its own.
type frugalReader struct {
	f     *os.File
	since int64
}

func (r *frugalReader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	if r.since += int64(n); r.since >= cacheInterval || err != nil && r.since > 0 {
		release(r.f)
		r.since = 0
	}
	return n, err
}

func (r *frugalReader) Close() error {
	release(r.f)
	return r.f.Close()
}

// frugalWriter does the same for a file being written; dirty pages can't be given back, so they are synced first.
type frugalWriter struct {
	f     *os.File
	since int64
}

func (w *frugalWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if w.since += int64(n); err == nil && w.since >= cacheInterval {
		err = w.settle()
	}
	return n, err
}

// settle makes what was written durable and gives its cache back.
func (w *frugalWriter) settle() error {
	w.since = 0
	if err := w.f.Sync(); err != nil {
		return err
	}
	release(w.f)
	return nil
}

// release is advice: a file system that doesn't take it changes nothing.
func release(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }

// copyBlocks moves r to w in blocks and asks check before each.
func copyBlocks(w io.Writer, r io.Reader, block []byte, check func() error) (int64, error) {
	var total int64
	for {
		if err := check(); err != nil {
			return total, err
		}
		n, err := io.ReadFull(r, block)
		if n > 0 {
			if _, werr := w.Write(block[:n]); werr != nil {
				return total, werr
			}
			total += int64(n)
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return total, nil
		default:
			return total, err
		}
	}
}
