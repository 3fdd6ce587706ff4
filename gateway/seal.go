package gateway

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// sealer keeps start orders, which hold users' secrets, unreadable in the store: each is sealed under a key of its
// own in a file of its own. A copy of the store (a backup) holds no key, and removing the key ends the secret.
type sealer struct{ dir string }

// newSealer makes the folder of keys.
func newSealer(dir string) (*sealer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of sealing keys: %w", err)
	}
	return &sealer{dir: dir}, nil
}

func (s *sealer) path(id scheduler.WorkloadID) string { return filepath.Join(s.dir, string(id)+".key") }

// seal makes a key for the workload and returns the sealed start order.
func (s *sealer) seal(id scheduler.WorkloadID, start api.Start) ([]byte, error) {
	plain, err := json.Marshal(start)
	if err != nil {
		return nil, fmt.Errorf("sealing the start order: %w", err)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if err := renameio.WriteFile(s.path(id), key, 0o600, renameio.IgnoreUmask()); err != nil {
		return nil, fmt.Errorf("storing a sealing key: %w", err)
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce)
	return aead.Seal(nonce, nonce, plain, []byte(id)), nil
}

// open reads a sealed start order back.
func (s *sealer) open(id scheduler.WorkloadID, sealed []byte) (api.Start, error) {
	var start api.Start
	key, err := os.ReadFile(s.path(id))
	if err != nil {
		return start, fmt.Errorf("reading the sealing key: %w", err)
	}
	aead, err := newAEAD(key)
	if err != nil {
		return start, err
	}
	if len(sealed) < aead.NonceSize() {
		return start, errors.New("opening the start order: it is too short")
	}
	plain, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(id))
	if err != nil {
		return start, fmt.Errorf("opening the start order: %w", err)
	}
	if err := json.Unmarshal(plain, &start); err != nil {
		return start, fmt.Errorf("opening the start order: %w", err)
	}
	return start, nil
}

// forget removes the workload's key; what it sealed is unreadable from here on.
func (s *sealer) forget(id scheduler.WorkloadID) error {
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a sealing key: %w", err)
	}
	return nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("using a sealing key: %w", err)
	}
	return cipher.NewGCM(block)
}
