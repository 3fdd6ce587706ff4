//go:build live

package breakage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// queue is a rig whose jobs wait for somebody to release them.
type queue struct{ *rig.Rig }

func newQueue(t *testing.T) queue {
	t.Helper()
	return queue{newRig(t, rig.Options{Profiles: "[profiles.default]\npartition = \"main\"\nmax_nodes = 4\ndirectives = [\"--hold\"]\n"})}
}

func (queue) release(t *testing.T, job string) { shared.Slurm(t, "scontrol", "release", job) }

// requireCancelled: accounting says so too.
func (queue) requireCancelled(t *testing.T, job string) {
	t.Helper()
	state := strings.TrimSpace(shared.Slurm(t, "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+job, "--format=State"))
	require.True(t, strings.HasPrefix(state, "CANCELLED"), state)
}
