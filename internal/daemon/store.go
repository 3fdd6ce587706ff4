package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway"
)

// storeFile is the one store file in a state folder.
const storeFile = "state.db"

// CheckStore reads the whole store of a stopped daemon, the fence included, and says what is wrong. ErrLocked while
// a daemon runs.
func CheckStore(dir string) (report gateway.StoreReport, err error) {
	err = withStore(dir, func(db *bbolt.DB) error {
		if report, err = gateway.CheckStore(db); err != nil {
			return err
		}
		if _, err := credential.OpenFence(db); err != nil {
			report.Problems = append(report.Problems, "the fence: "+err.Error())
		}
		return nil
	})
	return report, err
}

// Compacted says what CompactStore did, in bytes.
type Compacted struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// CompactStore rewrites the store of a stopped daemon without the pages that hold nothing any more. The old file
// stays until the new one is whole.
func CompactStore(dir string) (c Compacted, err error) {
	path, fresh := filepath.Join(dir, storeFile), filepath.Join(dir, storeFile+".compact")
	err = withStore(dir, func(db *bbolt.DB) error {
		if c.Before, err = size(path); err != nil {
			return err
		}
		if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing an unfinished compaction: %w", err)
		}
		to, err := bbolt.Open(fresh, 0o600, credential.StoreOptions())
		if err != nil {
			return fmt.Errorf("compacting the store: %w", err)
		}
		const batch = 16 << 20
		if err := errors.Join(bbolt.Compact(to, db, batch), to.Sync(), to.Close()); err != nil {
			return fmt.Errorf("compacting the store: %w", err)
		}
		if c.After, err = size(fresh); err != nil {
			return err
		}
		return os.Rename(fresh, path)
	})
	if err != nil {
		return c, err
	}
	return c, syncFolder(dir)
}

// BackupStore writes a copy of the store to a new file: from the running daemon if one answers on the control
// socket, else from the file. Sealed secrets can't be opened with it.
func BackupStore(ctx context.Context, dir, control, to string) (n int64, err error) {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("making the backup: %w", err)
	}
	defer func() {
		if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
			os.Remove(to)
		}
	}()
	n, err = backupRunning(ctx, control, out)
	if !errors.Is(err, errNobody) {
		return n, err
	}
	err = withStore(dir, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			n, err = tx.WriteTo(out)
			return err
		})
	})
	return n, err
}

var errNobody = errors.New("no daemon answers")

func backupRunning(ctx context.Context, control string, to io.Writer) (int64, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		return d.DialContext(ctx, "unix", control)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://openai4s/v1/store", nil)
	if err != nil {
		return 0, fmt.Errorf("asking the daemon: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNobody, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what it says
		return 0, fmt.Errorf("the daemon answered %s: %s", resp.Status, text)
	}
	n, err := io.Copy(to, resp.Body)
	if err == nil && n != resp.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return n, fmt.Errorf("copying the store: %w", err)
	}
	return n, nil
}

// withStore opens the store of a stopped daemon.
func withStore(dir string, fn func(*bbolt.DB) error) error {
	path := filepath.Join(dir, storeFile)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	held, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer held.Close()
	db, err := bbolt.Open(path, 0o600, credential.StoreOptions())
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	return errors.Join(fn(db), db.Close())
}

func size(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("measuring the store: %w", err)
	}
	return info.Size(), nil
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	return errors.Join(f.Sync(), f.Close())
}
