// Package munge asks this host's MUNGE for credentials, by its own program.
package munge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/openai4s/hpc/internal/capped"
)

const (
	// TTL is how long a credential may be on its way, and how far two hosts' clocks may differ.
	TTL = 60 * time.Second
	// Max bounds a credential's bytes.
	Max = 4 << 10
	// timeout bounds the command.
	timeout = 10 * time.Second
	// maxWords bounds what is kept of what it says.
	maxWords = 500
)

// ErrNone is returned where this host makes no credential.
var ErrNone = errors.New("this host's MUNGE makes no credential")

// Command is the program's path, or its name in the PATH where a site says none.
func Command(path string) string {
	if path == "" {
		return "munge"
	}
	return path
}

// Make has MUNGE say who this process is, in a credential around payload. Both go through pipes, never through
// arguments. Errors: ErrNone, or ctx's.
func Make(ctx context.Context, command string, payload []byte) ([]byte, error) {
	name := Command(command)
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, name, fmt.Sprintf("--ttl=%d", int(TTL.Seconds())))
	cmd.WaitDelay = time.Second
	cmd.Stdin = bytes.NewReader(payload)
	out, words := capped.Buffer{Most: Max + 1}, capped.Buffer{Most: maxWords}
	cmd.Stdout, cmd.Stderr = &out, &words
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limited.Err() != nil:
		return nil, fmt.Errorf("%w: %s gave no answer within %s", ErrNone, name, timeout)
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w: %s", ErrNone, name, err, oneLine(words.String()))
	}
	credential := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if !Is(credential) {
		return nil, fmt.Errorf("%w: %s printed something else", ErrNone, name)
	}
	return credential, nil
}

// Is tells whether a text has the form of a credential: MUNGE:base64:.
func Is(b []byte) bool {
	text, ok := bytes.CutPrefix(b, []byte("MUNGE:"))
	text, ends := bytes.CutSuffix(text, []byte(":"))
	return ok && ends && len(text) > 0 && len(b) <= Max && !bytes.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '+' || r == '/' || r == '=')
	})
}

// oneLine is a text on one line, with what a terminal would act on replaced.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
}
