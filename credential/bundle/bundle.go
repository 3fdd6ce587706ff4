// Package bundle is the file that carries a gang's credentials from the user's own process to its ranks.
package bundle

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
}

// Encode makes the bundle's bytes: the header and one credential line per rank.
func Encode(h Header, lines [][]byte) ([]byte, error) { return nil, nil }

// Write puts a bundle in place: temporary name, 0600, fsync, rename, fsync of the folder.
func Write(path string, data []byte) error { return nil }

// ReadHeader reads the header alone, with the same checks as Read.
func ReadHeader(path string) (Header, error) { return Header{}, nil }

// Read returns the header and rank r's credential line, without padding or newline.
func Read(path string, rank int) (Header, []byte, error) { return Header{}, nil, nil }
