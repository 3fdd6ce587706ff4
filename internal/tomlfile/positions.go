package tomlfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// Pos is a place in a file.
type Pos struct {
	Line   int // from 1
	Column int // from 1, in bytes
}

// Bounds on nesting. The parser recurses by value and takes time quadratic in the parts of a key: without them a small
// hostile file costs gigabytes of stack or hours.
const (
	maxDepth = 32 // arrays and inline tables inside one another
	maxParts = 16 // of a dotted key
)

// errStop ends a scan where the text stops being TOML; the parser says what is wrong there.
var errStop = errors.New("not TOML from here on")

// positions walks a TOML text and notes where each key stands, elements of arrays included. It doesn't judge: what
// the parser would refuse just ends the walk. Only nesting beyond the bounds is an error of its own.
func positions(text string) (map[Key]Pos, error) {
	s := &scanner{text: text, line: 1, at: map[Key]Pos{}, tables: map[Key]int{}}
	err := s.document()
	if errors.Is(err, errStop) {
		err = nil
	}
	return s.at, err
}

type scanner struct {
	text   string
	i      int // of the next byte
	line   int
	start  int // of the line
	at     map[Key]Pos
	tables map[Key]int // arrays of tables: elements so far
	depth  int
}

func (s *scanner) pos() Pos { return Pos{Line: s.line, Column: s.i - s.start + 1} }

func (s *scanner) peek() byte {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0
}

func (s *scanner) skip(n int) {
	for ; n > 0 && s.i < len(s.text); n-- {
		if s.text[s.i] == '\n' {
			s.line++
			s.start = s.i + 1
		}
		s.i++
	}
}

func (s *scanner) take(prefix string) bool {
	if !strings.HasPrefix(s.text[s.i:], prefix) {
		return false
	}
	s.skip(len(prefix))
	return true
}

func (s *scanner) blanks() {
	for s.peek() == ' ' || s.peek() == '\t' {
		s.i++
	}
}

// space skips blanks, line ends and comments.
func (s *scanner) space() {
	for s.i < len(s.text) {
		switch s.peek() {
		case ' ', '\t', '\r', '\n':
			s.skip(1)
		case '#':
			for s.i < len(s.text) && s.peek() != '\n' {
				s.i++
			}
		default:
			return
		}
	}
}

func (s *scanner) document() error {
	table := Key("")
	for {
		s.space()
		if s.i >= len(s.text) {
			return nil
		}
		var err error
		if s.peek() == '[' {
			table, err = s.header()
		} else {
			err = s.pair(table)
		}
		if err != nil {
			return err
		}
	}
}

// header reads [a.b] or [[a.b]] and returns the table's key.
func (s *scanner) header() (Key, error) {
	at := s.pos()
	array := s.take("[[")
	if !array {
		s.take("[")
	}
	parts, err := s.dotted()
	if err != nil {
		return "", err
	}
	if array && !s.take("]]") || !array && !s.take("]") {
		return "", errStop
	}
	key := Key("")
	for i, p := range parts {
		key = key.Dot(p)
		s.note(key, at)
		if array && i == len(parts)-1 {
			key = key.Index(s.tables[key])
			s.tables[key.Parent()]++
			s.note(key, at)
		} else if n := s.tables[key]; n > 0 {
			key = key.Index(n - 1) // a table inside an array of tables is one of its last element
		}
	}
	s.at[key] = at // the header, where an earlier [a.b] only implied a
	return key, nil
}

func (s *scanner) note(key Key, at Pos) {
	if _, known := s.at[key]; !known {
		s.at[key] = at
	}
}

// pair reads key = value below table.
func (s *scanner) pair(table Key) error {
	at := s.pos()
	parts, err := s.dotted()
	if err != nil {
		return err
	}
	key := table
	for _, p := range parts {
		key = key.Dot(p)
		s.note(key, at)
	}
	if !s.take("=") {
		return errStop
	}
	s.blanks()
	return s.value(key)
}

// dotted reads the parts of a key and the blanks around them.
func (s *scanner) dotted() ([]string, error) {
	var parts []string
	for {
		s.blanks()
		begin := s.i
		switch c := s.peek(); c {
		case '"', '\'':
			if !s.quoted(c) {
				return nil, errStop
			}
			parts = append(parts, unquote(s.text[begin:s.i]))
		default:
			for s.i < len(s.text) && !strings.ContainsRune(" \t\r\n.=[]{}#,\"'", rune(s.text[s.i])) {
				s.i++
			}
			if s.i == begin {
				return nil, errStop
			}
			parts = append(parts, s.text[begin:s.i])
		}
		if len(parts) > maxParts {
			return nil, &Error{Line: s.line, Column: begin - s.start + 1,
				Msg: fmt.Sprintf("a key of more than %d parts", maxParts)}
		}
		s.blanks()
		if !s.take(".") {
			return parts, nil
		}
	}
}

// unquote gives a quoted key's text, by the parser itself where it holds escapes.
func unquote(token string) string {
	if token[0] == '"' && strings.Contains(token, `\`) {
		var v struct{ K string }
		if _, err := toml.Decode("K = "+token, &v); err == nil {
			return v.K
		}
	}
	return token[1 : len(token)-1]
}

// quoted skips a one-line string and tells whether it ends.
func (s *scanner) quoted(q byte) bool {
	for s.i++; s.i < len(s.text); s.i++ {
		switch c := s.text[s.i]; {
		case c == q:
			s.i++
			return true
		case c == '\\' && q == '"':
			s.i++
		case c == '\n':
			return false
		}
	}
	s.i = len(s.text)
	return false
}

// long skips a string in three quotes. Up to two more quotes directly before the closing ones are its text.
func (s *scanner) long(q byte) bool {
	triple := strings.Repeat(string(q), 3)
	for s.skip(3); s.i < len(s.text); s.skip(1) {
		if s.peek() == '\\' && q == '"' {
			s.skip(1)
			continue
		}
		if s.take(triple) {
			for range 2 {
				if s.peek() == q {
					s.skip(1)
				}
			}
			return true
		}
	}
	return false
}

func (s *scanner) value(key Key) error {
	switch c := s.peek(); c {
	case '"', '\'':
		if strings.HasPrefix(s.text[s.i:], strings.Repeat(string(c), 3)) {
			if !s.long(c) {
				return errStop
			}
		} else if !s.quoted(c) {
			return errStop
		}
		return nil
	case '[', '{':
		if s.depth++; s.depth > maxDepth {
			return &Error{Line: s.line, Column: s.i - s.start + 1, Key: key,
				Msg: fmt.Sprintf("nested more than %d deep", maxDepth)}
		}
		defer func() { s.depth-- }()
		s.i++
		if c == '[' {
			return s.array(key)
		}
		return s.inline(key)
	}
	begin := s.i
	for s.i < len(s.text) && !strings.ContainsRune(",]}#\r\n", rune(s.text[s.i])) {
		s.i++
	}
	if s.i == begin {
		return errStop
	}
	return nil
}

func (s *scanner) array(key Key) error {
	for n := 0; ; n++ {
		s.space()
		if s.take("]") {
			return nil
		}
		element := key.Index(n)
		s.note(element, s.pos())
		if err := s.value(element); err != nil {
			return err
		}
		s.space()
		if !s.take(",") && s.peek() != ']' {
			return errStop
		}
	}
}

func (s *scanner) inline(key Key) error {
	for {
		s.space()
		if s.take("}") {
			return nil
		}
		if err := s.pair(key); err != nil {
			return err
		}
		s.space()
		if !s.take(",") && s.peek() != '}' {
			return errStop
		}
	}
}
