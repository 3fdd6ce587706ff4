package credential

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoadSecretCreatesOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadSecret(dir)
	require.NoError(t, err)
	second, err := LoadSecret(dir)
	require.NoError(t, err)
	require.True(t, first.Equal(second))

	fi, err := os.Stat(filepath.Join(dir, SecretFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), fi.Mode())
	require.EqualValues(t, 32, fi.Size())

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "the temporary file is gone")

	other, err := LoadSecret(t.TempDir())
	require.NoError(t, err)
	require.False(t, first.Equal(other))
	require.False(t, Secret{}.Equal(Secret{}))
}

func TestLoadSecretSettlesOnOne(t *testing.T) {
	dir := t.TempDir()
	got := make([]Secret, 16)
	errs := make([]error, len(got))
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i], errs[i] = LoadSecret(dir) })
	}
	wg.Wait()
	for i := range got {
		require.NoError(t, errs[i])
		require.True(t, got[0].Equal(got[i]))
	}
}

func TestLoadSecretRefuses(t *testing.T) {
	good := bytes.Repeat([]byte{7}, secretSize)
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		says string
	}{
		{"too short", func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, good[1:], 0o600)) }, "31 bytes"},
		{"too long", func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, append(good, 7), 0o600)) }, "33 bytes"},
		{"empty", func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, nil, 0o600)) }, "0 bytes"},
		{"readable by the group", func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, good, 0o600))
			require.NoError(t, os.Chmod(path, 0o640))
		}, "mode 0640"},
		{"writable by others", func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, good, 0o600))
			require.NoError(t, os.Chmod(path, 0o602))
		}, "mode 0602"},
		{"a folder", func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) }, "not a regular file"},
		{"a link", func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path+".real", good, 0o600))
			require.NoError(t, os.Symlink(path+".real", path))
		}, "symbolic link"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, SecretFile)
			tt.make(t, path)
			s, err := LoadSecret(dir)
			require.ErrorIs(t, err, ErrSecret)
			require.ErrorContains(t, err, tt.says)
			require.ErrorContains(t, err, path)
			require.Nil(t, s.key)
		})
	}
	t.Run("of another user", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), SecretFile)
		require.NoError(t, os.WriteFile(path, good, 0o600))
		_, err := readSecret(path, os.Geteuid()+1)
		require.ErrorIs(t, err, ErrSecret)
		require.ErrorContains(t, err, "chown")
	})
	t.Run("no folder", func(t *testing.T) {
		_, err := LoadSecret(filepath.Join(t.TempDir(), "missing"))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

// spellings are the ways the key's bytes could show.
func spellings(s Secret) []string {
	b := s.key()[:]
	return []string{
		string(b), hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)), base64.StdEncoding.EncodeToString(b),
		strings.Trim(fmt.Sprintf("%v", b), "[]"),
		strings.Trim(strings.TrimPrefix(fmt.Sprintf("%#v", b), "[]byte"), "{}"),
	}
}

func TestSecretPrintsNothing(t *testing.T) {
	s := testSecret("print")
	values := map[string]any{
		"itself":            s,
		"pointer":           &s,
		"exported field":    struct{ Secret Secret }{s},
		"unexported field":  struct{ secret Secret }{s},
		"pointer to struct": &struct{ secret Secret }{s},
		"slice":             []Secret{s},
		"map":               map[string]Secret{"a": s},
		"gatekeeper":        Gatekeeper{Secret: s},
		"nested":            struct{ g *Gatekeeper }{&Gatekeeper{Secret: s}},
		"in an error":       fmt.Errorf("with %v", s),
	}
	for name, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
			out := fmt.Sprintf(verb, v)
			for _, spelling := range spellings(s) {
				require.NotContains(t, out, spelling, "%s under %s", name, verb)
			}
		}
	}
	for _, spelling := range spellings(s) { // the search finds what it looks for
		require.Contains(t, fmt.Sprintf("%s %x %X %s %v %#v", s.key()[:], s.key()[:], s.key()[:],
			base64.StdEncoding.EncodeToString(s.key()[:]), s.key()[:], s.key()[:]), spelling)
	}

	out, err := json.Marshal(struct{ Secret Secret }{s})
	require.NoError(t, err)
	require.Equal(t, `{"Secret":"[redacted]"}`, string(out))
	text, err := s.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "[redacted]", string(text))
	require.Equal(t, "[redacted] [redacted] [redacted]", fmt.Sprintf("%v %+v %#v", s, s, s))
}

func TestZeroSecretDoesNothing(t *testing.T) {
	g := newGatekeeper(t)
	line := g.Secret.Issue(claim())
	g.Secret = Secret{}
	_, err := g.Admit(t.Context(), line, nil, ranks(4))
	require.ErrorIs(t, err, ErrNoSecret)
	_, err = g.Issue(t.Context(), "alloc_01", claim())
	require.ErrorIs(t, err, ErrNoSecret)
	require.Nil(t, Secret{}.Issue(claim()))
}
