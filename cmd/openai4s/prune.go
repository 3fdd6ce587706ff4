package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/openai4s/hpc/gateway/api"
)

// keepRun is how long the RUN folder of a workload that is over stays.
const keepRun = 7 * 24 * time.Hour

// pruneRuns removes the credentials that this user's ended workloads didn't need, and the RUN folders of those that
// ended long ago. Only where the gateway knows the end: a folder that it doesn't know may be another gateway's.
func pruneRuns(a *app, runtimeDir string, known []api.Workload, now time.Time) {
	for _, w := range known {
		if w.UID != os.Getuid() || !w.Phase.Terminal() || w.EndedAt.IsZero() {
			continue
		}
		dir, err := runDir(runtimeDir, w.ID)
		if err != nil {
			continue
		}
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		if now.Sub(w.EndedAt) < keepRun {
			err = removeBundles(dir)
		} else {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			a.note("removing what %s left: %v", w.ID, err)
		}
	}
}

// removeBundles removes the bundles of a RUN folder: those of epochs that never came.
func removeBundles(dir string) error {
	bundles, err := filepath.Glob(filepath.Join(dir, "gang-*.bundle"))
	for _, path := range bundles {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
