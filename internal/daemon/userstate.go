package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/openai4s/hpc/site"
)

// ErrSocketPath is returned by UserState for a folder that is too deep for a socket.
var ErrSocketPath = errors.New("the state folder's path is too long for a socket")

// maxSocketPath is what a Unix socket's name may have on Linux, without the final NUL.
const maxSocketPath = 107

// UserState is the state folder of one user's own gateway for a site, on this host:
// ${XDG_STATE_HOME:-~/.local/state}/openai4s/<site>-<host>. Its control socket lies in it.
func UserState(s site.Site) (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the convention's own rule: a relative one is ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the home folder: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding this host's name: %w", err)
	}
	dir := filepath.Join(base, "openai4s", s.Name+"-"+host)
	if n := len(ControlSocket(dir)); n > maxSocketPath {
		return "", fmt.Errorf("%w (%s: %d bytes with the socket, at most %d)", ErrSocketPath, dir, n, maxSocketPath)
	}
	return dir, nil
}

// ControlSocket is the control socket in a user's state folder.
func ControlSocket(dir string) string { return filepath.Join(dir, "control.sock") }
