package sbatch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutputPath(t *testing.T) {
	for pattern, want := range map[string]string{
		"openai4s-%w.out": "/data/openai4s-wl_1.out",
		"/abs/%j.%r":      "/abs/77.3",
		"100%.out":        "/data/100%.out",
		"%%j-%x-%":        "/data/%j-%x-%",
		"%%%j":            "/data/%77",
		"":                "/data",
	} {
		require.Equal(t, want, OutputPath(pattern, "/data", "wl_1", "77", 3), pattern)
	}
}

func TestPerRank(t *testing.T) {
	for pattern, want := range map[string]bool{"%r": true, "a%r.out": true, "%%r": false, "%w%j": false, "r": false, "%%%r": true} {
		require.Equal(t, want, PerRank(pattern), pattern)
	}
}
