package sbatch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutputPath(t *testing.T) {
	for pattern, want := range map[string]string{
		"openai4s-%w.out": "/work/openai4s-wl_1.out",
		"/abs/%j.%r":      "/abs/77.3",
		"100%.out":        "/work/100%.out",
		"%%j-%x-%":        "/work/%j-%x-%",
		"%%%j":            "/work/%77",
		"":                "/work",
	} {
		require.Equal(t, want, OutputPath(pattern, "/work", "wl_1", "77", 3), pattern)
	}
}

func TestPerRank(t *testing.T) {
	for pattern, want := range map[string]bool{"%r": true, "a%r.out": true, "%%r": false, "%w%j": false, "r": false, "%%%r": true} {
		require.Equal(t, want, PerRank(pattern), pattern)
	}
}
