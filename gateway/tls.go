package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
)

// Identity is the daemon's TLS key: what agents pin.
type Identity struct {
	Config *tls.Config
	Pin    string // "sha256:" + hex of the SubjectPublicKeyInfo
}

const keyFile = "tls-key.pem"

// LoadIdentity reads dir/tls-key.pem, or makes it (0600). Agents verify the key, never a name or a date, so the
// certificate around it is made afresh at every start.
func LoadIdentity(dir string) (Identity, error) {
	key, err := loadKey(filepath.Join(dir, keyFile))
	if err != nil {
		return Identity{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "openai4s"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(20, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return Identity{}, fmt.Errorf("making the TLS certificate: %w", err)
	}
	pin, err := pinOf(key)
	if err != nil {
		return Identity{}, err
	}
	return Identity{
		Pin: pin,
		Config: &tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
			// The rank's secret is dead once it was presented, so what a future quantum computer could read of a
			// recorded handshake is the job's own stream; the hybrid exchange costs a third of the whole handshake.
			CurvePreferences:       []tls.CurveID{tls.X25519},
			SessionTicketsDisabled: true,
		},
	}, nil
}

// Pin reads the pin of the key in dir, which must be there.
func Pin(dir string) (string, error) {
	path := filepath.Join(dir, keyFile)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("reading the TLS key: %w", err)
	}
	key, err := loadKey(path)
	if err != nil {
		return "", err
	}
	return pinOf(key)
}

func pinOf(key *ecdsa.PrivateKey) (string, error) {
	spki, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return "", fmt.Errorf("making the TLS pin: %w", err)
	}
	sum := sha256.Sum256(spki)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

func loadKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("making the TLS key: %w", err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("making the TLS key: %w", err)
		}
		data = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		if err := renameio.WriteFile(path, data, 0o600, renameio.IgnoreUmask()); err != nil {
			return nil, fmt.Errorf("storing the TLS key: %w", err)
		}
		return key, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the TLS key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("reading the TLS key: %s holds no PEM block; restore it from a backup, or remove it if no job is live", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the TLS key %s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("reading the TLS key: %s holds no ECDSA key", path)
	}
	return key, nil
}
