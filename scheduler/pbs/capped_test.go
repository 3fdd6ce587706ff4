package pbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// An answer without end is cut off at the bound, and is no answer.
func TestAnswerWithoutEndIsNone(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": `[ "$1" = --version ] && { echo "pbs_version = 23.06.06"; exit; }; head -c 80000000 /dev/zero | tr '\0' x`})
	_, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
	require.ErrorIs(t, err, scheduler.ErrNoAnswer)
	require.ErrorContains(t, err, "printed more than 67108864 bytes")
}
