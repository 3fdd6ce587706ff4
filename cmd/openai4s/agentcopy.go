package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/openai4s/hpc/site"
)

// agentName is the program that every rank starts.
const agentName = "openai4s-agent"

// agentPath is where compute nodes find the agent: the site's own, else a copy of the one beside this program in a
// folder named after its hash, so that an upgrade never replaces the program under a running job. found is false
// where there is none to copy; then path only shows where it would be.
func agentPath(s site.Site, runtimeDir string) (path, source string, found bool, err error) {
	if s.Agent != "" {
		return s.Agent, "", true, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", "", false, fmt.Errorf("finding this program's own path: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(self); err == nil {
		self = resolved
	}
	source = filepath.Join(filepath.Dir(self), agentName)
	sum, err := hashFile(source)
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(runtimeDir, "agent", "sha256", agentName), source, false, nil
	}
	if err != nil {
		return "", source, false, fmt.Errorf("reading the agent: %w", err)
	}
	return filepath.Join(runtimeDir, "agent", sum, agentName), source, true, nil
}

// placeAgent makes sure that the agent is where compute nodes look, and returns its path.
func placeAgent(s site.Site, runtimeDir string) (string, error) {
	path, source, found, err := agentPath(s, runtimeDir)
	switch {
	case err != nil:
		return "", err
	case source == "":
		return path, nil // the site's own; it may be visible on compute nodes alone
	case !found:
		return "", &failure{exit: exitBadFile,
			message: fmt.Sprintf("there is no %s beside this program (%s)", agentName, source),
			hint:    "install it there, or name it as site.agent in the site file"}
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o100 != 0 {
		return path, nil // written by rename, so what is there is whole
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", runtimeDirError(err)
	}
	if err := copyProgram(source, path); err != nil {
		return "", runtimeDirError(err)
	}
	return path, nil
}

func copyProgram(source, path string) error {
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("reading the agent: %w", err)
	}
	defer in.Close()
	out, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o755), renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return fmt.Errorf("copying the agent: %w", err)
	}
	defer out.Cleanup()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copying the agent: %w", err)
	}
	if err := out.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("copying the agent: %w", err)
	}
	return nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// runtimeDirError says which key of the site file decides where these files go.
func runtimeDirError(err error) error {
	return &failure{exit: exitBadFile, cause: err, message: err.Error(),
		hint: "site.runtime_dir must be a folder you can write to, on the file system that login and compute nodes share"}
}
