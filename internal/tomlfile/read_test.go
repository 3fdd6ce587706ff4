package tomlfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asFileError fails the test unless err is an *Error.
func asFileError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	require.True(t, errors.As(err, &e), "%T %v is no *Error", err, err)
	return e
}

func TestReadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	huge := filepath.Join(dir, "huge.toml")
	require.NoError(t, os.WriteFile(huge, []byte("a = 1\n"), 0o600))
	require.NoError(t, os.Truncate(huge, 10<<20))
	for _, tc := range []struct {
		name, path, msg string
		is              error
	}{
		{"missing", filepath.Join(dir, "none.toml"), "no such file", fs.ErrNotExist},
		{"folder", dir, "is a folder, not a file", nil},
		{"fifo without a writer", fifo, "is not a regular file", nil},
		{"device", "/dev/zero", "is not a regular file", nil},
		{"larger than the bound", huge, "is larger than 1 MiB", nil},
		{"file below a file", filepath.Join(huge, "x"), "opening it: not a directory", syscall.ENOTDIR},
		{"NUL in the path", "a\x00b", "the path holds a NUL byte", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			done := make(chan error, 1)
			go func() { _, err := Read(tc.path); done <- err }()
			select {
			case err := <-done:
				e := asFileError(t, err)
				assert.Equal(t, tc.path, e.File)
				assert.Equal(t, tc.msg, e.Msg)
				if tc.is != nil {
					assert.ErrorIs(t, err, tc.is)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("reading never ended")
			}
		})
	}
}

func TestReadUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can read every file")
	}
	path := filepath.Join(t.TempDir(), "a.toml")
	require.NoError(t, os.WriteFile(path, []byte("a = 1\n"), 0))
	_, err := Read(path)
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.Contains(t, err.Error(), "not allowed to read it")
}

func TestReadTakesAFileOfTheBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.toml")
	text := "a = 1\n#" + strings.Repeat("x", MaxSize-7)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	f, err := Read(path)
	require.NoError(t, err)
	assert.True(t, f.Has("a"))
	require.NoError(t, os.WriteFile(path, []byte(text+"x"), 0o600))
	_, err = Read(path)
	assert.ErrorContains(t, err, "is larger than 1 MiB")
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, text   string
		line, column int
		key          Key
		msg, hint    string
	}{
		{"UTF-8 byte order mark", "\xef\xbb\xbfa = 1", 1, 1, "", "begins with a byte order mark", "without a byte order mark"},
		{"UTF-16 byte order mark", "\xff\xfea\x00", 1, 1, "", "begins with a byte order mark", "UTF-8"},
		{"NUL byte", "a = 1\nb = \"x\x00\"", 2, 7, "", "holds a NUL byte", "text file"},
		{"NUL in a comment", "a = 1 # \x00", 1, 9, "", "holds a NUL byte", ""},
		{"escaped NUL in a value", "a = 1\n[t]\nb = \"x\\u0000y\"", 3, 1, "t.b", "holds a NUL character", ""},
		{"escaped NUL in a list", "a = [\n\"x\",\n\"\\u0000\"]", 3, 1, "a[1]", "holds a NUL character", ""},
		{"escaped NUL in a key", "a = 1\n\"x\\u0000\" = 1", 2, 1, "\"x\x00\"", "the key's name holds a NUL character", ""},
		{"escaped NUL in an array of tables", "[[a]]\nb = 1\n[[a]]\nb = \"\\u0000\"", 4, 1, "a[1].b", "holds a NUL character", ""},
		{"not UTF-8", "a = 1\nb = \"\xe4\"", 2, 6, "", "byte 0xe4 is not UTF-8", "UTF-8"},
		{"no value", "a = 1\nb =\n", 2, 0, "", "expected value", `key = "value"`},
		{"bare word", "a = 1\nb = slurm\n", 2, 0, "", "expected value", `key = "value"`},
		{"key twice", "a = 1\nb = 2\na = 3\n", 3, 0, "", "already", "once"},
		{"table twice", "[a]\nx = 1\n[a]\ny = 1\n", 3, 0, "", "already", "once"},
		{"open string", "a = \"x\n", 1, 0, "", "strings cannot contain newlines", ""},
		{"control character", "a = \"\x01\"", 1, 0, "", "control characters", ""},
		{"deep list", "a = " + strings.Repeat("[", 100_000), 1, 37, "", "nested more than 32 deep", ""},
		{"deep table", "a = " + strings.Repeat("{a=", 100_000), 1, 0, "", "nested more than 32 deep", ""},
		{"long key", strings.Repeat("a.", 50_000) + "a = 1", 1, 33, "", "a key of more than 16 parts", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("x.toml", []byte(tc.text))
			e := asFileError(t, err)
			assert.Equal(t, "x.toml", e.File)
			assert.Equal(t, tc.line, e.Line, "line of %v", e)
			if tc.column > 0 {
				assert.Equal(t, tc.column, e.Column, "column of %v", e)
			}
			if tc.key != "" {
				assert.Equal(t, tc.key, e.Key)
			}
			assert.Contains(t, e.Msg, tc.msg)
			assert.Contains(t, e.Hint, tc.hint)
			assert.NotContains(t, e.Error(), "\x00")
		})
	}
}

func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  Error
		want string
	}{
		{Error{File: "/etc/site.toml", Line: 12, Key: "profiles.gpu.max_nodes", Msg: "is required"}, `/etc/site.toml:12: key "profiles.gpu.max_nodes": is required`},
		{Error{File: "a.toml", Msg: "no such file"}, "a.toml: no such file"},
		{Error{Key: "nodes", Line: 3, Msg: "5 is too many"}, `key "nodes": 5 is too many`},
		{Error{Msg: "bad", Hint: "kept apart"}, "bad"},
		{Error{File: "a\x1b[31m\n.toml", Msg: "bad"}, `a\x1b[31m\x0a.toml: bad`},
	} {
		assert.Equal(t, tc.want, tc.err.Error())
	}
	assert.Equal(t, "do this", (&Error{Hint: "do this"}).Remedy())
}

func TestShowCutsAndEscapes(t *testing.T) {
	assert.Equal(t, `"a\x1b[2Jb"`, Show("a\x1b[2Jb"))
	assert.Equal(t, `"\xff"`, Show("\xff"))
	assert.Equal(t, `"\u202ex"`, Show("\u202ex"))
	assert.LessOrEqual(t, len(Show(strings.Repeat("x", 1<<20))), 100)
}
