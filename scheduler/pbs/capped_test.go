package pbs

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// An answer without end is cut off and is no answer; memory doesn't grow with it.
func TestAnswerWithoutEndIsNone(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": `[ "$1" = --version ] && { echo "pbs_version = 23.06.06"; exit; }; head -c 80000000 /dev/zero | tr '\0' x`})
	var heap uint64
	var err error
	heap = grown(func() { _, err = s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}}) })
	require.ErrorIs(t, err, scheduler.ErrNoAnswer)
	require.Less(t, heap, uint64(3*maxOutput))
}

// grown is how many bytes fn allocated.
func grown(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
