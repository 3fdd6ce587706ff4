package credential

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SecretFile is the name of the secret's file in the daemon's state directory.
const SecretFile = "worker-bootstrap-secret"

const (
	secretSize = 32
	redacted   = "[redacted]"
)

// Secret is the daemon's 32-byte HMAC key. It prints as "[redacted]". The bytes are behind a function, since fmt calls
// no method on another struct's unexported field and follows a pointer there; no printer can follow a function.
// Compare with Equal.
type Secret struct{ key func() *[secretSize]byte }

func newSecret(key [secretSize]byte) Secret {
	return Secret{key: func() *[secretSize]byte { return &key }}
}

// LoadSecret reads dir/worker-bootstrap-secret, or creates it (0600, hard link, so that two daemons settle on one).
func LoadSecret(dir string) (Secret, error) {
	path := filepath.Join(dir, SecretFile)
	s, err := readSecret(path, os.Geteuid())
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if err := createSecret(dir, path); err != nil {
		return Secret{}, fmt.Errorf("creating secret %s: %w", path, err)
	}
	return readSecret(path, os.Geteuid())
}

// readSecret checks the open file, not the name, so that nothing can be swapped in between.
func readSecret(path string, uid int) (Secret, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return Secret{}, fmt.Errorf("%w: %s is a symbolic link; put the file itself there", ErrSecret, path)
	}
	if err != nil {
		return Secret{}, fmt.Errorf("opening secret: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Secret{}, fmt.Errorf("examining secret %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return Secret{}, fmt.Errorf("%w: %s is not a regular file", ErrSecret, path)
	case int(st.Uid) != uid:
		return Secret{}, fmt.Errorf("%w: %s belongs to uid %d, the daemon runs as %d; chown it", ErrSecret, path, st.Uid, uid)
	case st.Mode&0o077 != 0:
		return Secret{}, fmt.Errorf("%w: %s has mode %04o, others can reach it; chmod 600, or remove it where others may have read it (live credentials are void then)", ErrSecret, path, st.Mode&0o7777)
	case st.Size != secretSize:
		return Secret{}, fmt.Errorf("%w: %s has %d bytes, not %d; restore it, or remove it (live credentials are void then)", ErrSecret, path, st.Size, secretSize)
	}
	var key [secretSize]byte
	if _, err := io.ReadFull(f, key[:]); err != nil {
		return Secret{}, fmt.Errorf("reading secret %s: %w", path, err)
	}
	return newSecret(key), nil
}

// createSecret writes a whole file under a name of its own and links it into place: of two daemons that do so at
// once, one link succeeds, and neither ever sees half a secret.
func createSecret(dir, path string) error {
	f, err := os.CreateTemp(dir, "."+SecretFile+".*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var key [secretSize]byte
	rand.Read(key[:])
	if _, err := f.Write(key[:]); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Issue signs a claim and returns the credential's line as the upstream issuer writes it, without a newline. Callers
// that hand a credential out use Gatekeeper.Issue, which has the fence remember the expiry first. It returns nil
// for the zero Secret.
func (s Secret) Issue(c Claim) []byte {
	if s.key == nil {
		return nil
	}
	sum := s.sign(c)
	return appendLine(make([]byte, 0, 320), c, hex.EncodeToString(sum[:]))
}

// sign returns the HMAC-SHA256 of the claim's signed text.
func (s Secret) sign(c Claim) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, s.key()[:])
	h.Write(appendSigned(make([]byte, 0, 256), c))
	h.Sum(sum[:0])
	return sum
}

// verify compares in constant time, on the text: only 64 lower-case hex digits are a signature.
func (s Secret) verify(c Claim, signature string) bool {
	sum := s.sign(c)
	var want [2 * sha256.Size]byte
	hex.Encode(want[:], sum[:])
	return subtle.ConstantTimeCompare(want[:], []byte(signature)) == 1
}

// Equal compares in constant time. Zero secrets equal nothing.
func (s Secret) Equal(o Secret) bool {
	return s.key != nil && o.key != nil && subtle.ConstantTimeCompare(s.key()[:], o.key()[:]) == 1
}

// String redacts.
func (Secret) String() string { return redacted }

// GoString redacts.
func (Secret) GoString() string { return redacted }

// Format redacts under every verb.
func (Secret) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// MarshalText redacts.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON redacts.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
