package capped_test

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/internal/capped"
)

func TestBuffer(t *testing.T) {
	b := capped.Buffer{Most: 5}
	for _, text := range []string{"ab", "", "cde"} {
		n, err := b.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
	}
	require.False(t, b.Over)
	n, err := io.WriteString(&b, "fgh")
	require.NoError(t, err)
	require.Equal(t, 3, n, "the writer isn't blocked")
	require.True(t, b.Over)
	require.Equal(t, "abcde", b.String())
	require.Equal(t, []byte("abcde"), b.Bytes())
}

// However a copy goes about it, the bound holds.
func TestBoundOfACopy(t *testing.T) {
	b := capped.Buffer{Most: 10}
	_, err := io.Copy(&b, strings.NewReader(strings.Repeat("x", 100)))
	require.NoError(t, err)
	require.Len(t, b.Bytes(), 10)

	c := capped.Buffer{Most: 10}
	cmd := exec.Command("sh", "-c", "head -c 100000 /dev/zero")
	cmd.Stdout = &c
	require.NoError(t, cmd.Run())
	require.Len(t, c.Bytes(), 10)
	require.True(t, c.Over)
}
