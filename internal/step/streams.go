package step

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
)

const (
	progressPrefix    = "@lspo:progress "     // section 12: with the blank
	progressPrefixOwn = "@openai4s:progress " // what a job's command may print too
)

// streams is all that is ever printed: whole lines, redacted, without control characters (section 12). Both
// streams are stored and searchable. It is safe for concurrent use.
type streams struct {
	redactor
	mu       sync.Mutex
	out, err io.Writer
	fraction float64 // the last one reported; fractions never fall
	reported int     // progress lines so far
}

// say prints a line on stdout, warn one on stderr. What can't be printed is lost: a reader that went away never
// costs a run its marker.
func (s *streams) say(format string, args ...any)  { s.line(s.out, fmt.Sprintf(format, args...)) }
func (s *streams) warn(format string, args ...any) { s.line(s.err, fmt.Sprintf(format, args...)) }

func (s *streams) line(w io.Writer, text string) {
	text = s.text(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(w, text+"\n")
}

// progress reports a fraction of the whole, at most maxProgressLines times and never one below the last.
func (s *streams) progress(fraction float64, phase string) {
	if !finite(fraction) {
		return
	}
	phase = cut(s.text(phase), maxPhase)
	s.mu.Lock()
	defer s.mu.Unlock()
	fraction = math.Round(min(max(fraction, s.fraction, 0), 1)*1e4) / 1e4
	near := s.reported > 0 && fraction < 1 && fraction-s.fraction < 1.0/maxProgressLines
	if near || s.reported > maxProgressLines {
		return
	}
	s.fraction = fraction
	s.reported++
	text, err := json.Marshal(struct {
		Fraction float64 `json:"fraction"`
		Phase    string  `json:"phase"`
	}{fraction, phase})
	if err != nil {
		return
	}
	_, _ = io.WriteString(s.out, progressPrefix+string(text)+"\n")
}

// readProgress understands a progress line of a command. ok is false for a malformed one, which is ordinary log.
func readProgress(line string) (fraction float64, phase string, ok bool) {
	text, found := strings.CutPrefix(line, progressPrefix)
	if !found {
		if text, found = strings.CutPrefix(line, progressPrefixOwn); !found {
			return 0, "", false
		}
	}
	v, ok := parse([]byte(strings.TrimSpace(text)))
	if !ok {
		return 0, "", false
	}
	o, ok := asObject(v)
	if !ok || o["fraction"].Kind() != '0' || json.Unmarshal(o["fraction"], &fraction) != nil {
		return 0, "", false
	}
	phase, _ = asString(o["phase"])
	return fraction, phase, fraction >= 0 && fraction <= 1
}
