// Package bundle is the file that carries a gang's credentials from the user's own process to its ranks.
//
// The first 4096 bytes are a JSON header, padded with NUL. Rank r's credential line stands at 4096 + 512·r, padded with
// NUL. So a rank reads its own with two small reads, whatever the gang's size.
package bundle

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// Format is the only one there is.
	Format = 1

	// HeaderSize is the room for the header, in bytes.
	HeaderSize = 4096

	// LineSize is the room for one credential line, in bytes.
	LineSize = 512

	// MaxRanks is more than any header may name: 512 MiB of lines.
	MaxRanks = 1 << 20

	maxPins = 2

	// AttestMunge in a header: the gateway wants a MUNGE credential in the hello, as gateway/wire says.
	AttestMunge = "munge"
)

// Header is the bundle's first 4096 bytes, as JSON padded with NUL.
type Header struct {
	Format       int      `json:"format"` // 1
	Workload     string   `json:"workload"`
	Allocation   string   `json:"allocation"`
	Epoch        int64    `json:"epoch"`
	Size         int      `json:"size"` // ranks
	RanksPerNode int      `json:"ranks_per_node"`
	Addresses    []string `json:"addresses"` // host:port, tried in order
	TLS          string   `json:"tls"`       // on | off
	Pins         []string `json:"pins"`      // "sha256:" + hex of the certificate's SubjectPublicKeyInfo; at most two
	DialTimeout  string   `json:"dial_timeout"`
	Attest       string   `json:"attest,omitempty"` // how ranks say whose they are: AttestMunge, or "" for not at all
	Munge        string   `json:"munge,omitempty"`  // path of the munge command on the nodes; "": that of the PATH
}

// check says what an agent couldn't work with.
func (h Header) check() error {
	if h.Format != Format {
		return fmt.Errorf("%w: format %d, not %d", ErrFormat, h.Format, Format)
	}
	switch {
	case h.Workload == "":
		return fmt.Errorf("%w: workload is empty", ErrFormat)
	case h.Allocation == "":
		return fmt.Errorf("%w: allocation is empty", ErrFormat)
	case h.Epoch < 0:
		return fmt.Errorf("%w: epoch %d", ErrFormat, h.Epoch)
	case h.Size < 1 || h.Size > MaxRanks:
		return fmt.Errorf("%w: size %d, not 1 to %d", ErrFormat, h.Size, MaxRanks)
	case h.RanksPerNode < 1 || h.RanksPerNode > h.Size:
		return fmt.Errorf("%w: %d ranks per node of %d ranks", ErrFormat, h.RanksPerNode, h.Size)
	case len(h.Addresses) == 0:
		return fmt.Errorf("%w: no address to dial", ErrFormat)
	case h.TLS != "on" && h.TLS != "off":
		return fmt.Errorf("%w: tls %q, not on or off", ErrFormat, h.TLS)
	case h.TLS == "on" && len(h.Pins) == 0:
		return fmt.Errorf("%w: tls is on and no pin says whom to trust", ErrFormat)
	case len(h.Pins) > maxPins:
		return fmt.Errorf("%w: %d pins, at most %d", ErrFormat, len(h.Pins), maxPins)
	}
	switch {
	case h.Attest != "" && h.Attest != AttestMunge:
		return fmt.Errorf("%w: attest %.40q is not known to this version; is it older than the gateway?", ErrFormat, h.Attest)
	case h.Attest != "" && h.TLS != "on":
		return fmt.Errorf("%w: an attestation is asked for and tls is off", ErrFormat)
	case h.Munge != "" && !filepath.IsAbs(h.Munge):
		return fmt.Errorf("%w: munge %.80q is not an absolute path", ErrFormat, h.Munge)
	}
	for _, pin := range h.Pins {
		digest, ok := strings.CutPrefix(pin, "sha256:")
		if b, err := hex.DecodeString(digest); !ok || err != nil || len(b) != 32 {
			return fmt.Errorf("%w: pin %.80q is not sha256: and 64 hex digits", ErrFormat, pin)
		}
	}
	if d, err := time.ParseDuration(h.DialTimeout); err != nil || d <= 0 {
		return fmt.Errorf("%w: dial_timeout %.40q is not a positive duration", ErrFormat, h.DialTimeout)
	}
	return nil
}

// Encode makes the bundle's bytes: the header and one credential line per rank, without newlines, in rank order.
func Encode(h Header, lines [][]byte) ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("encoding bundle: %w", err)
	}
	if len(lines) != h.Size {
		return nil, fmt.Errorf("encoding bundle: %w: %d lines for %d ranks", ErrFormat, len(lines), h.Size)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encoding bundle: %w: %w", ErrFormat, err)
	}
	if len(head) > HeaderSize {
		return nil, fmt.Errorf("encoding bundle: %w: header of %d bytes, at most %d; shorten the addresses", ErrFormat, len(head), HeaderSize)
	}
	data := make([]byte, fileSize(h.Size))
	copy(data, head)
	for rank, line := range lines {
		if len(line) == 0 || len(line) > LineSize || bytes.ContainsAny(line, "\x00\r\n") {
			return nil, fmt.Errorf("encoding bundle: %w: rank %d's line has %d bytes or a line end, at most %d and none", ErrFormat, rank, len(line), LineSize)
		}
		copy(data[offset(rank):], line)
	}
	return data, nil
}

func offset(rank int) int64 { return HeaderSize + LineSize*int64(rank) }

func fileSize(ranks int) int64 { return offset(ranks) }

// decodeHeader reads the padded 4096 bytes.
func decodeHeader(block []byte) (Header, error) {
	text, ok := unpad(block)
	if !ok {
		return Header{}, fmt.Errorf("%w: the header is empty or something follows its padding", ErrFormat)
	}
	var h Header
	if err := json.Unmarshal(text, &h); err != nil { // case-sensitive, no duplicate names, valid UTF-8
		return Header{}, fmt.Errorf("%w: the header is not the JSON of one", ErrFormat)
	}
	if err := h.check(); err != nil {
		return Header{}, err
	}
	return h, nil
}

// unpad strips the NULs; ok is false where nothing is left, or a NUL stands inside.
func unpad(block []byte) (text []byte, ok bool) {
	text = bytes.TrimRight(block, "\x00")
	return text, len(text) > 0 && bytes.IndexByte(text, 0) < 0
}
