package wire

import (
	"encoding/json"
	"fmt"
	"io"
)

// Refused is the answer to every refused credential, whatever the cause.
const Refused = `{"ok": false, "error": "refused"}` + "\n"

// maxAnswer bounds an answer line.
const maxAnswer = 8 << 10

// Answer is the gateway's line.
type Answer struct {
	OK         bool   `json:"ok"`
	Generation string `json:"generation,omitempty"`
	Resume     string `json:"resume,omitempty"` // the next credential's line, framed agents only
	Error      string `json:"error,omitempty"`
}

// Accepted returns the answer line to an admitted peer, spaced as the upstream gateway writes it. resume is empty
// for a peer that announced nothing.
func Accepted(generation string, resume []byte) []byte {
	if len(resume) == 0 {
		return []byte(`{"ok": true, "generation": "` + generation + `"}` + "\n")
	}
	quoted, err := json.Marshal(string(resume))
	if err != nil { // a string always marshals
		quoted = []byte(`""`)
	}
	return []byte(`{"ok": true, "generation": "` + generation + `", "resume": ` + string(quoted) + "}\n")
}

// ReadAnswer reads the gateway's line, byte by byte so that no frame behind it is taken. io.EOF and
// io.ErrUnexpectedEOF mean that the gateway closed without a verdict.
func ReadAnswer(r io.Reader) (Answer, error) {
	var line []byte
	var b [1]byte
	for {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			if err == io.EOF && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return Answer{}, err
		}
		if b[0] == '\n' {
			break
		}
		if len(line) == maxAnswer {
			return Answer{}, fmt.Errorf("%w: over %d bytes", ErrAnswer, maxAnswer)
		}
		line = append(line, b[0])
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return a, nil
}
