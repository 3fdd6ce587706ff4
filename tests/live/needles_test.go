//go:build live

package live_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// needle is a secret and the shapes it could be found in.
type needle struct {
	name   string
	shapes [][]byte
}

// newNeedle takes a secret as it is, in hex and in base64, inside other text or not.
func newNeedle(name string, secret []byte) needle {
	n := needle{name: name, shapes: [][]byte{secret, []byte(hex.EncodeToString(secret)), []byte(strings.ToUpper(hex.EncodeToString(secret)))}}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 { // bytes that share the first character with it
			text := enc.EncodeToString(append(make([]byte, before), secret...))
			n.shapes = append(n.shapes, []byte(text[(before*8+5)/6:(before+len(secret))*8/6]))
		}
	}
	return n
}

// magnet finds many needles in one pass over a text.
type magnet struct{ byStart [1 << 16][]metal }

type metal struct {
	shape []byte
	name  string
}

func newMagnet(needles []needle) *magnet {
	m := &magnet{}
	for _, n := range needles {
		for _, shape := range n.shapes {
			start := binary.BigEndian.Uint16(shape)
			m.byStart[start] = append(m.byStart[start], metal{shape, n.name})
		}
	}
	return m
}

// found names the needles that are in a text.
func (m *magnet) found(text []byte) []string {
	seen := map[string]bool{}
	for i := 0; i+1 < len(text); i++ {
		for _, c := range m.byStart[binary.BigEndian.Uint16(text[i:])] {
			if bytes.HasPrefix(text[i:], c.shape) {
				seen[c.name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func TestTheSearchFinds(t *testing.T) {
	t.Parallel()
	secret := []byte("\x00\x01secret of twenty bytes\xff")
	m := newMagnet([]needle{newNeedle("it", secret)})
	for name, text := range map[string]string{
		"as it is":       "before " + string(secret) + " after",
		"hex":            "0x" + hex.EncodeToString(secret) + "00",
		"upper hex":      strings.ToUpper(hex.EncodeToString(secret)),
		"base64":         base64.StdEncoding.EncodeToString(secret),
		"base64, within": base64.StdEncoding.EncodeToString([]byte("a" + string(secret) + "z")),
		"base64, later":  base64.URLEncoding.EncodeToString([]byte("ab" + string(secret) + "yz")),
	} {
		require.Equal(t, []string{"it"}, m.found([]byte(text)), name)
	}
	require.Empty(t, m.found([]byte("secret of nineteen byte")))
}

// The bundle's layout, DESIGN.md section 6.
const (
	headerSize     = 4096
	credentialSize = 512
)

// bundleNeedles are the signature and nonce of every credential in a bundle file.
func bundleNeedles(t *testing.T, path string) []needle {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var all []needle
	for rank, at := 0, headerSize; at < len(data); rank, at = rank+1, at+credentialSize {
		var c map[string]any
		line := bytes.TrimRight(data[at:at+credentialSize], "\x00")
		require.NoError(t, json.Unmarshal(line, &c), "%q", line)
		for _, member := range []string{"signature", "nonce"} {
			text, _ := c[member].(string)
			require.NotEmpty(t, text, "rank %d has a %s", rank, member)
			all = append(all, newNeedle(fmt.Sprintf("%s of rank %d in %s", member, rank, filepath.Base(path)), []byte(text)))
		}
		if text, _ := c["signature"].(string); len(text) == 64 {
			raw, err := hex.DecodeString(text)
			require.NoError(t, err)
			all = append(all, newNeedle(fmt.Sprintf("signature's bytes of rank %d in %s", rank, filepath.Base(path)), raw))
		}
	}
	return all
}

var (
	resumeNonce   = regexp.MustCompile(`resume\.[1-9][0-9]*\.[A-Za-z0-9_-]{32}`)
	attemptSecret = regexp.MustCompile(`"attempt":"([0-9a-f]{64})"`)
)

// memoryNeedles are what an agent keeps in its memory alone: its resume credential and its attempt secret.
func memoryNeedles(t *testing.T, pid int) []needle {
	t.Helper()
	var all []needle
	memory := rig.Memory(t, pid)
	for i, nonce := range unique(resumeNonce.FindAll(memory, -1)) {
		all = append(all, newNeedle(fmt.Sprintf("resume nonce %d of process %d", i, pid), nonce))
	}
	require.NotEmpty(t, all, "an admitted agent has a resume credential in its memory")
	for _, m := range attemptSecret.FindAllSubmatch(memory, -1) {
		return append(all, newNeedle(fmt.Sprintf("attempt secret of process %d", pid), m[1]))
	}
	return all
}

func unique(all [][]byte) [][]byte {
	var kept [][]byte
	seen := map[string]bool{}
	for _, b := range all {
		if !seen[string(b)] {
			seen[string(b)] = true
			kept = append(kept, bytes.Clone(b))
		}
	}
	return kept
}
