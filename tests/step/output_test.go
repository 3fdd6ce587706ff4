package step_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type progress struct {
	Fraction *float64 `json:"fraction"`
	Phase    *string  `json:"phase"`
}

// progressOf reads stdout as the platform does.
func progressOf(t *testing.T, stdout string) (all []progress, log []string) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "@lspo:progress ")
		if !ok {
			log = append(log, line)
			continue
		}
		var p progress
		require.NoError(t, json.Unmarshal([]byte(text), &p), line)
		require.NotNil(t, p.Fraction)
		require.NotNil(t, p.Phase)
		require.LessOrEqual(t, len([]rune(*p.Phase)), 64)
		require.True(t, 0 <= *p.Fraction && *p.Fraction <= 1, line)
		if len(all) > 0 {
			require.GreaterOrEqual(t, *p.Fraction, *all[len(all)-1].Fraction, "fractions never fall")
		}
		all = append(all, p)
	}
	return all, log
}

func TestProgressMovesAndNeverFalls(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "0.csv", data: "r"}, in{name: "1.csv", data: "r"}, in{name: "2.csv", data: "r"}, in{name: strings.Repeat("3", 99), data: "r"})
	j.succeeded()
	all, _ := progressOf(t, j.stdout.String())
	distinct := map[float64]bool{}
	for _, p := range all {
		distinct[*p.Fraction] = true
	}
	require.GreaterOrEqual(t, len(distinct), 5)
	require.EqualValues(t, 1, *all[len(all)-1].Fraction)
}

func TestProgressOfManyInputsStaysWithinAbout200Lines(t *testing.T) {
	t.Parallel()
	var inputs []in
	for i := range 600 {
		inputs = append(inputs, in{name: fmt.Sprint(i), data: "r"})
	}
	j := newJob(t, inputs...)
	j.succeeded()
	all, log := progressOf(t, j.stdout.String())
	require.LessOrEqual(t, len(all), 201)
	require.Greater(t, len(all), 100)
	require.Less(t, len(log), 10, "the log is no place for a line an input")
}

func TestFailedRunNeverReportsTheWholeAsDone(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1", pin: doc{"sha256": nil}})
	j.failed(10)
	all, _ := progressOf(t, j.stdout.String())
	require.Less(t, *all[len(all)-1].Fraction, 1.0)
}

func TestSuccessPrintsNothingOnStderr(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.succeeded()
	require.Empty(t, j.stderr.String())
}
