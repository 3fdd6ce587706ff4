package api

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadReports(t *testing.T) {
	run := t.TempDir()
	for name, text := range map[string]string{
		"exit-1.0":      `{"epoch":1,"rank":0,"code":3,"host":"n1"}`,
		"exit-1.12":     `{"epoch":7,"rank":7,"code":0,"signal":9,"cause":"order"}`, // the name counts
		"exit-0.0":      `{"code":1}`,                                               // another epoch's
		"exit-11.0":     `{"code":1}`,
		"exit-1":        "3\n", // the gang's code
		"exit-1.x":      `{"code":1}`,
		"gang-1.bundle": "secret",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(run, name), []byte(text), 0o600))
	}
	reports, err := ReadReports(run, 1)
	require.NoError(t, err)
	assert.ElementsMatch(t, []ExitReport{
		{Epoch: 1, Rank: 0, Code: 3, Host: "n1"},
		{Epoch: 1, Rank: 12, Signal: 9, Cause: "order"},
	}, reports)

	require.NoError(t, os.WriteFile(filepath.Join(run, "exit-1.3"), []byte("{"), 0o600))
	reports, err = ReadReports(run, 1)
	assert.ErrorContains(t, err, "exit-1.3")
	assert.Len(t, reports, 2, "the others count all the same")

	reports, err = ReadReports(filepath.Join(run, "missing"), 1)
	require.NoError(t, err)
	assert.NotNil(t, reports, "read, and nothing lay there")
	assert.Empty(t, reports)
}
