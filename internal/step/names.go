package step

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var sha256Hex = regexp.MustCompile(`\A[0-9a-f]{64}\z`)

// CheckRelpath holds a name against the rules every reader of a marker applies (section 9). It is relative, has no
// backslash, no control character and no empty, "." or ".." component, and is UTF-8, for a marker is JSON.
func CheckRelpath(name string) error {
	switch {
	case name == "":
		return permanentf("an object's name is empty")
	case !utf8.ValidString(name):
		return permanentf("%q is no UTF-8 and can't stand in a marker; rename it", name)
	case strings.Contains(name, `\`):
		return permanentf("%q has a backslash", name)
	case hasControl(name):
		return permanentf("%q has a control character", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return permanentf("%q is not a plain relative path", name)
		}
	}
	return nil
}

// checkPort trims a port's name and refuses a blank one or one with a control character (section 9).
func checkPort(name string) (string, error) {
	name = strings.TrimSpace(name)
	if name == "" || hasControl(name) || !utf8.ValidString(name) {
		return "", permanentf("%q can't be the name of a port", name)
	}
	return name, nil
}

// hasControl reports U+0000 to U+001F.
func hasControl(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < 0x20 }) >= 0
}

// nameSet gives out names that are taken once each (sections 5 and 17).
type nameSet struct {
	taken   map[string]bool
	parents map[string]bool // folders that a taken name needs
	files   bool            // names are files of one folder: a file's name can't be another's folder
}

// newNameSet starts with the contract's own names taken. On a file system (files), a name is also taken when it
// would have to be a file and a folder at once.
func newNameSet(files bool) *nameSet {
	s := &nameSet{taken: map[string]bool{}, parents: map[string]bool{}, files: files}
	for _, n := range []string{invocationName, resultName, logsName, markerName} {
		s.taken[n] = true
	}
	return s
}

// claim takes dir/name. If that is taken: dir/port/name, then dir/port/stem-2.ext, -3 and so on. On a file system a
// file may stand where the port's folder would be; then the folder gets the number. dir may be "".
func (s *nameSet) claim(dir, port, name string) (string, error) {
	if err := CheckRelpath(name); err != nil {
		return "", err
	}
	port, err := checkPort(port)
	if err != nil {
		return "", err
	}
	chosen := s.choose(dir, portDir(port), name)
	if err := CheckRelpath(chosen); err != nil {
		return "", fmt.Errorf("naming an output: %w", err)
	}
	s.take(chosen)
	return chosen, nil
}

func (s *nameSet) choose(dir, port, name string) string {
	if candidate := path.Join(dir, name); s.free(candidate) {
		return candidate
	}
	folder := path.Join(dir, port)
	for n := 2; s.blocked(path.Join(folder, name)); n++ {
		folder = path.Join(dir, port+"-"+strconv.Itoa(n))
	}
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if strings.HasSuffix(stem, "/") || stem == "" { // ".profile" is all stem
		stem, ext = name, ""
	}
	candidate := path.Join(folder, name)
	for n := 2; !s.free(candidate); n++ {
		candidate = path.Join(folder, stem+"-"+strconv.Itoa(n)+ext)
	}
	return candidate
}

func (s *nameSet) free(name string) bool {
	return !s.taken[name] && !s.blocked(name) && !(s.files && s.parents[name])
}

// blocked reports whether a file stands where name needs a folder.
func (s *nameSet) blocked(name string) bool {
	if !s.files {
		return false
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if s.taken[dir] {
			return true
		}
	}
	return false
}

func (s *nameSet) take(name string) {
	s.taken[name] = true
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		s.parents[dir] = true
	}
}

// portDir is a port's name as one path component.
func portDir(port string) string {
	port = strings.NewReplacer("/", "_", `\`, "_").Replace(port)
	if port == "." || port == ".." {
		return "_"
	}
	return port
}
