package munge_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/internal/munge"
)

// program writes one of the test's.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return path
}

func TestMake(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	made, err := munge.Make(t.Context(), program(t, `echo "$0 $*" >`+seen+`; cat >>`+seen+`; echo MUNGE:YQ==:`), []byte("payload"))
	require.NoError(t, err)
	require.Equal(t, "MUNGE:YQ==:", string(made))
	text, err := os.ReadFile(seen)
	require.NoError(t, err)
	require.Contains(t, string(text), "--ttl=60\npayload", "the payload is no argument")

	for name, tt := range map[string]struct{ text, says string }{
		"down":         {`printf '\033[31mno socket' >&2; exit 6`, "exit status 6:  [31mno socket"},
		"silent":       {"true", "something else"},
		"another text": {"echo hello", "something else"},
		"endless":      {"yes MUNGE:YQ==: | head -c 100000", "something else"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := munge.Make(t.Context(), program(t, tt.text), nil)
			require.ErrorIs(t, err, munge.ErrNone)
			require.ErrorContains(t, err, tt.says)
		})
	}
	_, err = munge.Make(t.Context(), "/no/such/munge", nil)
	require.ErrorIs(t, err, munge.ErrNone)
	require.ErrorIs(t, err, os.ErrNotExist)

	// Whoever waits is told why they no longer do, and not that MUNGE is to blame.
	why := errors.New("the walltime is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	_, err = munge.Make(ctx, program(t, "exec sleep 60"), nil)
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, munge.ErrNone)
}

func TestIs(t *testing.T) {
	for text, want := range map[string]bool{
		"MUNGE:YQ==:": true, "MUNGE::": false, "MUNGE:YQ==": false, "munge:YQ==:": false, "MUNGE:Y Q:": false, "MUNGE:YQ==:\n": false,
		"MUNGE:" + strings.Repeat("A", munge.Max) + ":": false, "": false,
	} {
		require.Equal(t, want, munge.Is([]byte(text)), text)
	}
}
