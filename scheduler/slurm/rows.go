package slurm

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// A row ends in no line feed that could be trusted: job names hold any byte, line feeds too, and the row of one user
// must not be able to write that of another. So each query ends each of its fields with a delimiter of its own,
// drawn afresh, and a row is a fixed number of fields.

// newDelimiter begins with no digit and no point: squeue would take those for a width.
func newDelimiter() string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	return "|" + hex.EncodeToString(b[:]) + "|"
}

// rows cuts a command's output into rows of n fields, each ended by delimiter. What stands before a row's first field
// on lines of its own (a site's banner) and after the last row is dropped. It never fails: output without rows has none.
func rows(out []byte, delimiter string, n int) [][]string {
	parts := bytes.Split(out, []byte(delimiter))
	parts = parts[:len(parts)-1] // behind the last delimiter stands no field
	all := make([][]string, 0, len(parts)/max(n, 1))
	for ; len(parts) >= n && n > 0; parts = parts[n:] {
		row := make([]string, n)
		for i, p := range parts[:n] {
			row[i] = strings.TrimSpace(string(p))
		}
		first := string(parts[0])
		row[0] = strings.TrimSpace(first[strings.LastIndexByte(first, '\n')+1:])
		all = append(all, row)
	}
	return all
}
