package sbatch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What srun of 26.05 would read twice is either left away or refused.
func TestSrunOutput(t *testing.T) {
	for output, want := range map[string]struct{ workdir, srun string }{
		"a%r.txt":       {"/plain", "/plain/a%t.txt"},
		"50%-%j-%r.txt": {"/work 50%", "/work 50%%/50%%-%j-%t.txt"},
		"50%.%r":        {"/of %j", "50%%.%t"},
		"in/%j/%r":      {"/of %5j/deep", "in/%j/%t"},
		"/abs/%j/%r":    {"/of %j", "/abs/%j/%t"},
		"%%j.%r":        {"/plain", ""},
		"%%%r":          {"/plain", ""},
		"%%%%.%r":       {"/plain", ""},
		"/a %%12x/%r":   {"/plain", ""},
		"100%%x%r":      {"/of %j", ""},
	} {
		r, l := plainRequest("slurm"), plainLaunch()
		r.Output, r.Workdir = output, want.workdir
		sub, err := Render(r, l)
		if want.srun == "" {
			require.ErrorContains(t, err, "percent sign", output)
			continue
		}
		require.NoError(t, err, output)
		require.Contains(t, string(sub.Script), words("--output="+want.srun), output)
	}
	// One file of the whole job is sbatch's, which reads it once.
	r, l := plainRequest("slurm"), plainLaunch()
	r.Output = "%%j.txt"
	sub, err := Render(r, l)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(sub.Script), "%%j.txt"))
}
