package slurm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

// TestCase28OneMeaningOnEveryVersion: the form that we ask for names its fields, and three versions of Slurm filled it
// with the same words. JSON, whose shape changed, is no answer to us.
func TestCase28OneMeaningOnEveryVersion(t *testing.T) {
	told := map[string]map[string]scheduler.Observation{}
	for _, v := range versions {
		told[v] = map[string]scheduler.Observation{}
		for _, r := range records([]byte(read(t, v, "squeue.txt")), recordedDelimiter, queueFields, true) {
			o := r.observation()
			require.NotEmpty(t, o.Verbatim)
			// What is the recording's own: where and when the job ran.
			o.Hosts, o.SubmitTime, o.StartTime, o.EndTime = nil, time.Time{}, time.Time{}, time.Time{}
			told[v][o.Name] = o
		}
	}
	require.Greater(t, len(told[versions[0]]), 8)
	for _, v := range versions[1:] {
		for name, o := range told[versions[0]] {
			again, ok := told[v][name]
			require.True(t, ok, "%s has no job %s", v, name)
			assert.Equal(t, o.Phase, again.Phase, "%s of %s", name, v)
			assert.Equal(t, o.Reason, again.Reason, "%s of %s", name, v)
			assert.Equal(t, o.ExitCode, again.ExitCode, "%s of %s", name, v)
			assert.Equal(t, o.ExitSignal, again.ExitSignal, "%s of %s", name, v)
			assert.Equal(t, o.Held, again.Held, "%s of %s", name, v)
			assert.Equal(t, o.Restarts, again.Restarts, "%s of %s", name, v)
		}
	}
	// Excerpts of what the versions print with --json: a string became a list, a number an object.
	for version, text := range map[string]string{
		"22.05":           `{"jobs":[{"job_id":12,"job_state":"RUNNING","exit_code":768,"restart_cnt":0}]}`,
		"24.11 and 26.05": `{"jobs":[{"job_id":12,"job_state":["RUNNING"],"exit_code":{"return_code":{"set":true,"infinite":false,"number":3}},"restart_cnt":0}]}`,
		"22.05, down":     `{"jobs":[],"errors":[{"error":"Unable to contact slurm controller (connect failure)"}]}`,
	} {
		assert.Empty(t, records([]byte(text), recordedDelimiter, queueFields, true), version)
	}
}
