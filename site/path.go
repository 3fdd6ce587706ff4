package site

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/openai4s/hpc/internal/tomlfile"
)

// expand makes a path absolute and clean: it must be so already, or begin with "~/". The error holds message and hint.
func expand(p string) (string, *Error) {
	switch {
	case strings.ContainsFunc(p, isControl):
		return "", &Error{Msg: tomlfile.Show(p) + " holds a control character"}
	case filepath.IsAbs(p):
		return filepath.Clean(p), nil
	case p == "~" || strings.HasPrefix(p, "~/"):
		home, err := homeDir()
		if err != nil {
			return "", &Error{Msg: "no home folder is known for " + tomlfile.Show(p), Hint: "set HOME, or write an absolute path", Err: err}
		}
		return filepath.Join(home, p[1:]), nil
	case strings.HasPrefix(p, "~"):
		return "", &Error{Msg: tomlfile.Show(p) + " names another user's home", Hint: `only "~/" is expanded; write an absolute path`}
	case strings.Contains(p, "$"):
		return "", &Error{Msg: tomlfile.Show(p) + " is not an absolute path", Hint: `variables are not expanded; write an absolute path, or "~/…"`}
	}
	return "", &Error{Msg: tomlfile.Show(p) + " is not an absolute path", Hint: `write one that begins with "/" or "~/"`}
}

// homeDir is HOME where it is absolute, else what the user database says: a daemon may have no HOME.
func homeDir() (string, error) {
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return home, nil
	}
	u, err := user.LookupId(uid())
	if err != nil {
		return "", err
	}
	return u.HomeDir, nil
}

func uid() string { return strconv.Itoa(os.Getuid()) }

func isControl(r rune) bool { return r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 }
