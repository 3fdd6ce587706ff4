package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/scheduler"
)

// Facts of the local scheduler. There is no kill delay of the scheduler's own: a job brings its own.
func (*System) Facts(context.Context) (scheduler.Facts, error) {
	host, err := os.Hostname()
	if err != nil {
		return scheduler.Facts{}, fmt.Errorf("asking for the host's name: %w", err)
	}
	return scheduler.Facts{Cluster: host, MinJobAge: keep, Accounting: true}, nil
}

// Inspect describes this machine as a cluster of one partition.
func (s *System) Inspect(ctx context.Context) (scheduler.Cluster, error) {
	facts, err := s.Facts(ctx)
	if err != nil {
		return scheduler.Cluster{}, err
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return scheduler.Cluster{}, fmt.Errorf("asking for the machine's memory: %w", err)
	}
	gpus, err := filepath.Glob("/dev/nvidia[0-9]*")
	if err != nil {
		return scheduler.Cluster{}, fmt.Errorf("looking for GPUs: %w", err)
	}
	return scheduler.Cluster{
		Facts: facts,
		Partitions: []scheduler.PartitionFacts{{
			Name:          "local",
			Default:       true,
			Up:            true,
			Nodes:         1,
			CPUsPerNode:   runtime.NumCPU(),
			MemoryPerNode: int64(info.Totalram) * int64(info.Unit),
			GPUsPerNode:   len(gpus),
		}},
	}, nil
}
