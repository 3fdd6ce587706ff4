// Package sbatch renders batch scripts and submit arguments: bytes in, bytes out, nothing read, nothing run.
package sbatch

import "github.com/openai4s/hpc/scheduler"

// Render makes the submission of an accepted request. It is pure.
func Render(r scheduler.Request, l scheduler.Launch) (scheduler.Submission, error) {
	return scheduler.Submission{}, nil
}

// Quote makes one shell word of any text without NUL.
func Quote(s string) string { return s }
