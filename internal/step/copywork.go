package step

import (
	"context"
	"fmt"
	"os"
)

// copyWork is the smallest real step (section 17): each verified input becomes an output of the same name. Inputs
// go one after the other, and nothing is fetched ahead: one is on disk at a time (section 5).
func copyWork(ctx context.Context, r *run) error {
	var lines int64
	r.report.metrics["lines"] = lines
	total := totalSize(r.inputs)
	var done int64
	for i, in := range r.inputs {
		if err := stopped(ctx); err != nil {
			return err
		}
		relpath, err := r.names.claim(outputDir, in.port, in.name)
		if err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
		path := r.scratchFile()
		got, err := r.fetchInput(ctx, i, in, path)
		if err != nil {
			return err
		}
		lines += got.lines
		r.report.metrics["lines"] = lines
		err = r.publish(ctx, relpath, path, got, outputPort)
		if removeErr := os.Remove(path); err == nil && removeErr != nil {
			err = transientf("removing a scratch file: %w", pathless(removeErr))
		}
		if err != nil {
			return err
		}
		done += got.size
		r.progress(0.95*share(i+1, len(r.inputs), done, total), in.name)
	}
	return nil
}

func totalSize(inputs []input) (total int64) {
	for _, in := range inputs {
		if in.size < 0 {
			return 0
		}
		total += in.size
	}
	return total
}

// share is how far a list of inputs has come: half by number and half by bytes, where those are known.
func share(i, n int, done, total int64) float64 {
	byNumber := float64(i) / float64(n)
	if total <= 0 {
		return byNumber
	}
	return (byNumber + float64(done)/float64(total)) / 2
}
