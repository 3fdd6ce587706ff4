// Package job reads job.toml.
package job

import "github.com/openai4s/hpc/scheduler"

// Load reads and validates a job file.
func Load(path string, allowEnv []string) (scheduler.Job, error) { return scheduler.Job{}, nil }
