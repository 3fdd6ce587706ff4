// Package step is the external step: verified inputs, inventoried outputs, a marker written last.
package step

import "context"

// Run runs one external step from the environment and returns its exit code.
func Run(ctx context.Context, args []string) int { return 0 }
