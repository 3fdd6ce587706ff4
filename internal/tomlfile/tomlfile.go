// Package tomlfile reads TOML files strictly: a file that says something this program doesn't know, or says it in
// a wrong type, is refused by file, line and key, with the nearest right spelling. It is built on BurntSushi/toml, which
// checks the syntax; the mapping onto Go types and the places of keys are its own, since that library matches keys
// without regard to case and keeps no places of keys.
package tomlfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// MaxSize of a file, in bytes. Site and job files are a few KiB.
const MaxSize = 1 << 20

// File is a TOML file that was read and is well formed.
type File struct {
	Path   string
	SHA256 string // of its bytes, hex

	root map[string]any
	at   map[Key]Pos
}

// Decode reads the file at path into the struct that into points to; see File.Decode. Errors are *Error.
func Decode(path string, into any) error {
	f, err := Read(path)
	if err != nil {
		return err
	}
	return f.Decode(into)
}

// Read reads the file at path, at most MaxSize of it. Errors are *Error; errors.Is finds fs.ErrNotExist and
// fs.ErrPermission in them.
func Read(path string) (*File, error) {
	data, err := slurp(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

func slurp(path string) ([]byte, error) {
	fail := func(err error, msg, hint string) ([]byte, error) {
		return nil, &Error{File: path, Msg: msg, Hint: hint, Err: err}
	}
	if strings.IndexByte(path, 0) >= 0 {
		return fail(nil, "the path holds a NUL byte", "")
	}
	// Without O_NONBLOCK the open of a FIFO waits for a writer, maybe for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(err, "no such file", "check the path")
	case errors.Is(err, fs.ErrPermission):
		return fail(err, "not allowed to read it", "ask its owner for read permission on the file and its folders")
	case err != nil:
		return fail(err, "opening it: "+cause(err), "")
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return fail(err, "looking at it: "+cause(err), "")
	case info.IsDir():
		return fail(nil, "is a folder, not a file", "name the file in it")
	case !info.Mode().IsRegular():
		return fail(nil, "is not a regular file", "name a file; pipes and devices are not read")
	}
	// The size may be a lie (procfs) or change meanwhile, so the read is bounded as well.
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return fail(err, "reading it: "+cause(err), "")
	case len(data) > MaxSize:
		return fail(nil, fmt.Sprintf("is larger than %d MiB", MaxSize>>20), "is it the file you mean?")
	}
	return data, nil
}

// cause is the system's own words, without the path that the error's text already has.
func cause(err error) string {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

// Parse reads data; path is only for the errors, which are *Error.
func Parse(path string, data []byte) (*File, error) {
	if err := checkBytes(data); err != nil {
		err.File = path
		return nil, err
	}
	text := string(data)
	at, err := positions(text)
	if err == nil {
		f := &File{Path: path, at: at}
		if f.root, err = parse(text); err == nil {
			err = f.checkStrings("", f.root)
		}
		if err == nil {
			sum := sha256.Sum256(data)
			f.SHA256 = hex.EncodeToString(sum[:])
			return f, nil
		}
	}
	var e *Error
	if errors.As(err, &e) {
		e.File = path
		return nil, e
	}
	return nil, &Error{File: path, Msg: err.Error(), Err: err}
}

// checkBytes refuses what no TOML file of ours holds, before any parser sees it.
func checkBytes(data []byte) *Error {
	place := func(i int, msg, hint string) *Error {
		line := bytes.Count(data[:i], []byte{'\n'})
		return &Error{Line: line + 1, Column: i - (bytes.LastIndexByte(data[:i], '\n') + 1) + 1, Msg: msg, Hint: hint}
	}
	if len(data) > MaxSize {
		return &Error{Msg: fmt.Sprintf("is larger than %d MiB", MaxSize>>20)}
	}
	for _, bom := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(data, []byte(bom)) {
			return place(0, "begins with a byte order mark", "save it as UTF-8 without a byte order mark")
		}
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return place(i, "holds a NUL byte", "is it a text file?")
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return place(i, fmt.Sprintf("byte 0x%02x is not UTF-8", data[i]), "save it as UTF-8")
		}
		i += n
	}
	return nil
}

// parse is the library's, with its panics on texts it doesn't expect turned into errors.
func parse(text string) (root map[string]any, err error) {
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, &Error{Msg: "can't be read as TOML: " + Clean(fmt.Sprint(r))}
		}
	}()
	_, err = toml.Decode(text, &root)
	var pe toml.ParseError
	if errors.As(err, &pe) {
		return nil, &Error{Line: pe.Position.Line, Column: pe.Position.Col, Msg: Clean(pe.Message), Hint: syntaxHint(pe.Message)}
	}
	return root, err
}

func syntaxHint(msg string) string {
	switch {
	case strings.Contains(msg, "already been defined"), strings.Contains(msg, "already defined"), strings.Contains(msg, "already created"):
		return "each key may stand once"
	case strings.Contains(msg, "expected value but found"):
		return `text values are written in quotes, like key = "value"`
	}
	return ""
}

// checkStrings refuses NUL in keys and values: "\u0000" writes one where none is in the file's bytes.
func (f *File) checkStrings(at Key, v any) error {
	const nul = "holds a NUL character"
	var p Problems
	var walk func(at Key, v any)
	walk = func(at Key, v any) {
		switch v := v.(type) {
		case string:
			if strings.IndexByte(v, 0) >= 0 {
				p.Add(f.Errorf(at, "", nul))
			}
		case map[string]any:
			for k, sub := range v {
				if strings.IndexByte(k, 0) >= 0 {
					p.Add(f.Errorf(at.Dot(k), "", "the key's name "+nul))
				}
				walk(at.Dot(k), sub)
			}
		case []any:
			for i, sub := range v {
				walk(at.Index(i), sub)
			}
		case []map[string]any:
			for i, sub := range v {
				walk(at.Index(i), sub)
			}
		}
	}
	walk(at, v)
	return p.First()
}

// Pos returns where a key stands, or the nearest key around it that stands in the file.
func (f *File) Pos(key Key) Pos {
	for ; ; key = key.Parent() {
		if at, ok := f.at[key]; ok {
			return at
		}
		if key == "" {
			return Pos{}
		}
	}
}

// Has tells whether the file says the key.
func (f *File) Has(key Key) bool { _, ok := f.at[key]; return ok }

// Lines returns the line of every key of the file.
func (f *File) Lines() map[Key]int {
	lines := make(map[Key]int, len(f.at))
	for k, p := range f.at {
		lines[k] = p.Line
	}
	return lines
}

// Errorf makes an Error about a key of the file, with its line.
func (f *File) Errorf(key Key, hint, format string, args ...any) *Error {
	at := f.Pos(key)
	return &Error{File: f.Path, Line: at.Line, Column: at.Column, Key: key, Msg: fmt.Sprintf(format, args...), Hint: hint}
}

// Says tells whether the file gives the key this value: a string, an int, a bool, a time.Duration or a Size.
func (f *File) Says(key Key, value any) bool {
	v, ok := f.lookup(key)
	if !ok {
		return false
	}
	switch want := value.(type) {
	case int:
		n, ok := v.(int64)
		return ok && n == int64(want)
	case time.Duration:
		s, _ := v.(string)
		d, err := ParseDuration(s)
		return err == nil && d == want
	case Size:
		s, _ := v.(string)
		n, err := ParseSize(s)
		return err == nil && n == int64(want)
	}
	return v == value
}

// Text returns the text that the file gives a key, false where it gives none or something else.
func (f *File) Text(key Key) (string, bool) {
	v, _ := f.lookup(key)
	s, ok := v.(string)
	return s, ok
}

// lookup finds the value of a key whose parts are bare.
func (f *File) lookup(key Key) (any, bool) {
	var v any = f.root
	for part := range strings.SplitSeq(string(key), ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[part]; !ok {
			return nil, false
		}
	}
	return v, true
}
