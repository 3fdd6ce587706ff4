package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// ProblemKind is a stable word for what is wrong with a published folder.
type ProblemKind string

// The kinds of Problem.
const (
	NoMarker     ProblemKind = "no_marker"     // nothing says that the folder is whole
	BadMarker    ProblemKind = "bad_marker"    // the marker can't be understood
	NotSucceeded ProblemKind = "not_succeeded" // the marker says failed or cancelled
	Missing      ProblemKind = "missing"       // named and not there
	Changed      ProblemKind = "changed"       // there with another size or hash
	Extra        ProblemKind = "extra"         // there and not named
)

// Problem is one thing that is wrong with a published folder.
type Problem struct {
	Kind   ProblemKind `json:"kind"`
	Path   string      `json:"path,omitempty"` // below the folder; "" for the folder itself
	Detail string      `json:"detail"`         // for people
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Detail
	}
	return fmt.Sprintf("%s: %s", printable(p.Path), p.Detail)
}

// Verify holds a published folder against its marker: every object is there with its size and hash, nothing else
// is, and the marker says succeeded. No problems and no error mean that the folder is whole. An error means that it
// couldn't be looked at.
func Verify(dir string) ([]Problem, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", dir, err)
	}
	defer root.Close()
	m, err := readMarker(root)
	var malformed *markerMalformed
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Problem{{NoMarker, "", "no " + markerName + ": nothing says that these results are whole"}}, nil
	case errors.As(err, &malformed):
		return []Problem{{BadMarker, markerName, printable(malformed.reason)}}, nil
	case err != nil:
		return nil, fmt.Errorf("reading the marker: %w", err)
	}
	var problems []Problem
	if m.Status != Succeeded {
		detail := fmt.Sprintf("the marker says %s, exit code %d", cut(printable(string(m.Status)), maxPhase), m.ExitCode)
		if m.Error != nil {
			detail += ": " + cut(printable(*m.Error), maxError)
		}
		problems = append(problems, Problem{NotSucceeded, "", detail})
	}
	named := map[string]bool{markerName: true, invocationName: true, logsName: true}
	block := make([]byte, blockSize)
	for _, o := range m.Objects {
		named[o.Relpath] = true
		p, err := verifyObject(root, o, block)
		if err != nil {
			return problems, fmt.Errorf("reading %s: %w", o.Relpath, err)
		}
		if p != nil {
			problems = append(problems, *p)
		}
	}
	extra, err := extraFiles(root, named)
	return append(problems, extra...), err
}

func verifyObject(root *os.Root, o Object, block []byte) (*Problem, error) {
	info, err := root.Lstat(o.Relpath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Problem{Missing, o.Relpath, "the marker names it, and it is not there"}, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return &Problem{Changed, o.Relpath, "it is not a regular file"}, nil
	case info.Size() != o.Size:
		return &Problem{Changed, o.Relpath, fmt.Sprintf("it has %d bytes, the marker says %d", info.Size(), o.Size)}, nil
	}
	f, err := root.Open(o.Relpath)
	if err != nil {
		return nil, err
	}
	r := &frugalReader{f: f}
	defer r.Close()
	m, err := measure(nil, r, block, context.Background().Err)
	if err != nil {
		return nil, err
	}
	if m.sha256 != o.SHA256 {
		return &Problem{Changed, o.Relpath, fmt.Sprintf("it hashes to %s, the marker says %s", m.sha256, o.SHA256)}, nil
	}
	return nil, nil
}

// extraFiles lists what no marker names: results of another run, or leftovers of an interrupted one.
func extraFiles(root *os.Root, named map[string]bool) ([]Problem, error) {
	var names []string
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && !named[name] {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for other files: %w", err)
	}
	slices.Sort(names)
	problems := make([]Problem, 0, len(names))
	for _, name := range names {
		problems = append(problems, Problem{Extra, name, "the marker doesn't name it"})
	}
	return problems, nil
}
