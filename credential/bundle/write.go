package bundle

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write puts a bundle in place: temporary name in the same folder, 0600, fsync, rename, fsync of the folder. A folder
// that is missing is made with 0700. What stood at path is replaced.
func Write(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("writing bundle %s: %w", path, err)
	}
	// The mode is set on the file itself, whatever umask or the folder's default list say; 0600 masks a list's entries.
	err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return fmt.Errorf("writing bundle %s: %w", path, err)
	}
	if err := syncFolder(dir); err != nil {
		return fmt.Errorf("writing bundle %s: %w", path, err)
	}
	return nil
}

// syncFolder makes the rename survive a crash.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening its folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("syncing its folder: %w", err)
	}
	return nil
}
