package step

import (
	"bytes"
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a stop came before is not begun, and a marker names nothing that was not.
func TestStoppedRunRecordsNothingNew(t *testing.T) {
	var out, err bytes.Buffer
	r := newRun(func(string) string { return "" }, &out, &err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopBy{syscall.SIGTERM})
	require.ErrorIs(t, r.publish(ctx, "outputs/a", "/nowhere", measured{sha256: "x"}, outputPort), ErrStopped)
	require.ErrorIs(t, r.writeReport(ctx), ErrStopped)
	require.Empty(t, r.made.objects)
	require.Equal(t, notReported, r.reported)
}

func TestCredentialsPathWithoutAVariable(t *testing.T) {
	path, disagree := credentialsPath(func(string) string { return "" })
	require.Equal(t, "/lspo/creds/creds.json", path)
	require.False(t, disagree)
}

func TestURLsAreCutAtTheirQuery(t *testing.T) {
	for text, want := range map[string]string{
		"see https://h/a?tok=1#x now":             "see https://h/a now",
		"HTTP://u:p@h:8/a#x":                      "HTTP://h:8/a",
		"s3://bucket/key?versionId=1":             "s3://bucket/key",
		"http://h/o'brien.csv?tok=1":              "http://h/o'brien.csv",
		"Get 'http://h/a?tok=1': refused":         "Get 'http://h/a refused",
		`{"url":"http://h/a?tok=1","next":2}`:     `{"url":"http://h/a","next":2}`,
		"<Resource>http://h/a?tok=1</Resource> x": "<Resource>http://h/a</Resource> x",
		"http://h/a?tok=1\thttp://h/b?tok=2":      "http://h/a\thttp://h/b",
		"AKIACONFORMANCE12345":                    "[redacted]",
		"nothing to cut: 1?2#3":                   "nothing to cut: 1?2#3",
	} {
		require.Equal(t, want, new(redactor).text(text))
	}
}
