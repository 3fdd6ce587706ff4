package step

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// placeFile writes relpath below root: a .partial beside it, synced, then renamed over it (section 6), so that the
// name never shows half a file. root keeps links from leading out of the folder.
func placeFile(ctx context.Context, root *os.Root, relpath string, r io.Reader, block []byte) (err error) {
	dir := path.Dir(relpath)
	if dir != "." {
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	f, partial, err := createPartial(root, relpath)
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		if err != nil {
			_ = root.Remove(partial)
		}
	}()
	w := &frugalWriter{f: f}
	if _, err := copyBlocks(w, r, block, func() error { return ended(ctx) }); err != nil {
		return err
	}
	if err := w.settle(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := root.Rename(partial, relpath); err != nil {
		return err
	}
	return syncDir(root, dir)
}

// createPartial never takes a file away that somebody may need: an object may itself be named x.partial.
func createPartial(root *os.Root, relpath string) (*os.File, string, error) {
	partial := relpath + ".partial"
	for {
		f, err := root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, partial, err
		}
		partial += ".partial"
	}
}

func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// ended is the stop, or the end of a deadline.
func ended(ctx context.Context) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	return ctx.Err()
}
