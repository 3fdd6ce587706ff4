package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
)

func TestOutputFile(t *testing.T) {
	cases := []struct {
		name, output, job string
		want              string
		known             bool
	}{
		{"workload", "/o/x-%w.out", "", "/o/x-wl_1.out", true},
		{"job id that isn't known", "/o/x-%j.out", "", "", false},
		{"job id", "/o/x-%j.out", "12", "/o/x-12.out", true},
		{"rank", "/o/x-%r.out", "12", "/o/x-3.out", true},
		{"none", "", "12", "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, known := outputFile(api.Workload{ID: "wl_1", Output: c.output, Job: api.Job{ID: c.job}}, 3)
			require.Equal(t, c.want, got)
			require.Equal(t, c.known, known)
		})
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	var out bytes.Buffer
	follow := tail{path: path}
	require.True(t, errors.Is(follow.copy(&out), fs.ErrNotExist))
	write := func(text string, flags int) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flags, 0o600)
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, errors.Join(err, f.Close()))
		require.NoError(t, follow.copy(&out))
	}
	write("one\n", os.O_APPEND)
	write("two\n", os.O_APPEND)
	write("", os.O_APPEND)
	require.Equal(t, "one\ntwo\n", out.String())
	write("new\n", os.O_TRUNC) // a restarted job begins its file anew
	require.Equal(t, "one\ntwo\nnew\n", out.String())
}

func TestLineWriter(t *testing.T) {
	var out bytes.Buffer
	w := &lineWriter{to: &out, prefix: "3: "}
	for _, part := range []string{"a", "b\nc", "\n\nd", ""} {
		n, err := w.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.Equal(t, "3: ab\n3: c\n3: \n", out.String())
	w.flush()
	w.flush()
	require.Equal(t, "3: ab\n3: c\n3: \n3: d\n", out.String())
}
