package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// maxText is how much of one text from a peer, a tool or a file is shown.
const maxText = 4096

// neutral makes text from elsewhere fit for a terminal: control characters and what reorders a line become
// visible, and it is cut at maxText bytes. Newlines stay where lines is true.
func neutral(s string, lines bool) string {
	cut := len(s) > maxText
	if cut {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' && lines, r == ' ':
			return r
		case r == '\t' || r == '\n':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == unicode.ReplacementChar:
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	if cut {
		s += " …"
	}
	return s
}

// word is neutral for one line.
func word(s string) string { return neutral(s, false) }

// note tells something on standard error that isn't data.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.err, "%s\n", neutral(fmt.Sprintf(format, args...), true))
}

// print puts one object on standard output.
func (a *app) print(v any) error {
	var data bytes.Buffer
	to := json.NewEncoder(&data)
	to.SetEscapeHTML(false) // scripts stay readable
	to.SetIndent("", "  ")
	if err := to.Encode(v); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if _, err := a.out.Write(data.Bytes()); err != nil {
		return fmt.Errorf("writing standard output: %w", err)
	}
	return nil
}

// showFailure tells an error, as JSON on standard output or as text on standard error.
func (a *app) showFailure(f failure) {
	message, hint := neutral(f.message, true), neutral(f.hint, true)
	if a.json {
		var body struct {
			Error struct {
				Code     string `json:"code"`
				Message  string `json:"message"`
				Hint     string `json:"hint,omitempty"`
				ExitCode int    `json:"exit_code"`
			} `json:"error"`
		}
		body.Error.Code, body.Error.Message, body.Error.Hint, body.Error.ExitCode = codes[f.exit], message, hint, f.exit
		if a.print(body) == nil {
			return
		}
	}
	fmt.Fprintf(a.err, "openai4s: %s\n", message)
	if hint != "" {
		fmt.Fprintf(a.err, "hint: %s\n", hint)
	}
}

func cutPrefixWord(s, word string) (rest string, found bool) {
	if s == word {
		return "", true
	}
	return strings.CutPrefix(s, word+" ")
}
