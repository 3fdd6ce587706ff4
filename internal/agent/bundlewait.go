package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/openai4s/hpc/credential/bundle"
)

// bundleWait is how long a bundle that isn't there yet is waited for: shared file systems keep for a while that a
// name didn't exist.
const bundleWait = 120 * time.Second

// readBundle reads the rank's own credential, waiting for a bundle that isn't there yet.
func readBundle(ctx context.Context, o Options) (bundle.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, bundleWait)
	defer cancel()
	pause := 20 * time.Millisecond
	for {
		head, line, err := bundle.Read(o.Bundle, o.Rank)
		switch {
		case err == nil && head.Epoch != o.Epoch:
			return head, nil, fmt.Errorf("%w: %s is of epoch %d, this start is epoch %d", ErrUsage, o.Bundle, head.Epoch, o.Epoch)
		case err == nil:
			return head, line, nil
		case !errors.Is(err, fs.ErrNotExist):
			return head, nil, err
		}
		select {
		case <-ctx.Done():
			return head, nil, fmt.Errorf("%w (looked for %s; is runtime_dir on a file system that this node shares?)", err, bundleWait)
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
		_, _ = os.ReadDir(filepath.Dir(o.Bundle)) // makes the file system look again
	}
}
