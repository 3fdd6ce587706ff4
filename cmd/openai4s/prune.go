package main

import (
	"os"
	"time"

	"github.com/openai4s/hpc/gateway/api"
)

// keepRun is how long the RUN folder of a workload that is over stays.
const keepRun = 7 * 24 * time.Hour

// pruneRuns removes the RUN folders of this user's workloads that ended long ago. Only folders that the gateway knows
// the end of go: one that it doesn't know may be another gateway's.
func pruneRuns(a *app, runtimeDir string, known []api.Workload, now time.Time) {
	for _, w := range known {
		if w.UID != os.Getuid() || !w.Phase.Terminal() || w.EndedAt.IsZero() || now.Sub(w.EndedAt) < keepRun {
			continue
		}
		dir, err := runDir(runtimeDir, w.ID)
		if err != nil {
			continue
		}
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			a.note("removing what %s left: %v", w.ID, err)
		}
	}
}
