package step

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
)

// Object is one entry of a marker's inventory.
type Object struct {
	Relpath string `json:"relpath"` // below the staging prefix or the published folder
	SHA256  string `json:"sha256"`  // 64 lower-case hex digits
	Size    int64  `json:"size"`    // bytes
}

// inventory is what a marker will name. An object is recorded before its upload starts: an upload nobody heard the
// answer of may still land, and only what a marker names is ever salvaged (section 6).
type inventory struct {
	objects []Object
	ports   map[string][]string
	known   map[string]bool
	claimed map[claim]bool
}

type claim struct{ port, relpath string }

func newInventory() *inventory {
	return &inventory{objects: []Object{}, ports: map[string][]string{},
		known: map[string]bool{}, claimed: map[claim]bool{}}
}

func (v *inventory) record(o Object, ports ...string) {
	if !v.known[o.Relpath] {
		v.known[o.Relpath] = true
		v.objects = append(v.objects, o)
	}
	for _, port := range ports {
		if c := (claim{port, o.Relpath}); !v.claimed[c] {
			v.claimed[c] = true
			v.ports[port] = append(v.ports[port], o.Relpath)
		}
	}
}

func (v *inventory) bytes() (total int64) {
	for _, o := range v.objects {
		total += o.Size
	}
	return total
}

// measured is what one pass over some bytes tells.
type measured struct {
	sha256 string
	size   int64
	lines  int64 // newline bytes
}

// measure hashes, counts and, with a writer, copies. check is asked before each block.
func measure(w io.Writer, r io.Reader, block []byte, check func() error) (measured, error) {
	hash := sha256.New()
	m := measured{}
	tee := io.MultiWriter(hash, lineCounter{&m.lines})
	if w != nil {
		tee = io.MultiWriter(hash, lineCounter{&m.lines}, w)
	}
	var err error
	m.size, err = copyBlocks(tee, r, block, check)
	m.sha256 = hex.EncodeToString(hash.Sum(nil))
	return m, err
}

type lineCounter struct{ n *int64 }

func (c lineCounter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			*c.n++
		}
	}
	return len(p), nil
}

// hashingReader hashes what passes through it.
type hashingReader struct {
	r    io.Reader
	hash hash.Hash
	size int64
}

func (h *hashingReader) Read(p []byte) (int, error) {
	if h.hash == nil {
		h.hash = sha256.New()
	}
	n, err := h.r.Read(p)
	h.size += int64(n)
	_, _ = h.hash.Write(p[:n]) // never fails
	return n, err
}

func (h *hashingReader) sum() string { return hex.EncodeToString(h.hash.Sum(nil)) }

// measureFile measures a file that stays where it is.
func measureFile(ctx context.Context, path string, block []byte) (measured, error) {
	f, err := os.Open(path)
	if err != nil {
		return measured{}, err
	}
	r := &frugalReader{f: f}
	defer r.Close()
	return measure(nil, r, block, func() error { return ended(ctx) })
}
