// Package live holds the end-to-end tests on a real Slurm cluster of this machine: the daemon as a service user, jobs
// of unprivileged users, and the scheduler's own records beside ours. They need root and the build tag live:
//
//	make live
//
// Without the tag `go test ./...` shows this package as one without test files: nothing of it ran.
package live
