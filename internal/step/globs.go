package step

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// outputGlob says which files below a folder belong to a port.
type outputGlob struct {
	port  string
	parts []string // of the pattern; "**" stands for any number of folders
	glob  string
}

func newOutputGlob(port, glob string) (outputGlob, error) {
	port, err := checkPort(port)
	if err != nil {
		return outputGlob{}, err
	}
	clean := path.Clean(glob)
	if glob == "" || path.IsAbs(glob) || clean == ".." || strings.HasPrefix(clean, "../") {
		return outputGlob{}, permanentf("output %s: %q must name files below the work folder", port, glob)
	}
	if _, err := path.Match(clean, ""); err != nil {
		return outputGlob{}, permanentf("output %s: %q is not a pattern", port, glob)
	}
	return outputGlob{port: port, parts: strings.Split(clean, "/"), glob: glob}, nil
}

// match reports whether the file at parts, or a folder above it, fits: a folder that fits gives all its files.
func (g outputGlob) match(parts []string) bool { return matchParts(g.parts, parts) }

func matchParts(pattern, parts []string) bool {
	if len(pattern) == 0 {
		return true // what lies below a folder that fits
	}
	if pattern[0] == "**" {
		return matchParts(pattern[1:], parts) && (len(pattern) > 1 || len(parts) > 0) ||
			len(parts) > 0 && matchParts(pattern, parts[1:])
	}
	if len(parts) == 0 {
		return false
	}
	ok, _ := path.Match(pattern[0], parts[0]) // the pattern was tried before
	return ok && matchParts(pattern[1:], parts[1:])
}

// found is a file that at least one port wants.
type found struct {
	relpath string
	ports   []string
}

// findOutputs walks dir and gives the regular files that globs match, by name. Links to regular files count as
// files; folders behind links aren't entered. Names that skip accepts are left out. A folder that vanishes or can't be
// read fails the walk: an output that was missed in silence would be a receipt that lies.
func findOutputs(ctx context.Context, dir string, globs []outputGlob, skip func(relpath string) bool) ([]found, error) {
	var files []found
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ended(ctx); err != nil {
			return err
		}
		if name != "." && skip(name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		var ports []string
		parts := strings.Split(name, "/")
		for _, g := range globs {
			if !slices.Contains(ports, g.port) && g.match(parts) {
				ports = append(ports, g.port)
			}
		}
		if len(ports) == 0 {
			return nil
		}
		info, err := os.Stat(path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			return nil // a dangling link, a socket, a folder behind a link
		}
		if err != nil {
			return err
		}
		files = append(files, found{name, ports})
		return nil
	})
	slices.SortFunc(files, func(a, b found) int { return cmp.Compare(a.relpath, b.relpath) })
	return files, err
}
