package gateway

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/openai4s/hpc/internal/capped"
	"github.com/openai4s/hpc/internal/munge"
)

// What unmunge ends with. Every other code says that it had no opinion: its daemon is down, or the call was wrong.
const (
	mungeBadLength    = 3
	mungeBadFirst     = 8 // the codes from here to mungeBadLast are verdicts on the credential
	mungeExpired      = 15
	mungeRewound      = 16
	mungeReplayed     = 17
	mungeBadLast      = 18
	maxUnmungeWords   = 500
	maxUnmungeOutput  = 8 << 10
	unmungeAtATime    = 8
	unmungeTimeout    = 5 * time.Second
	unmungeExitsAfter = time.Second // once its pipes are to be closed
	// mungeDownEvery is how often the log says that MUNGE is down.
	mungeDownEvery = time.Minute
)

// errMungeDown: MUNGE can't say whether a credential is good. Nobody is let in.
var errMungeDown = errors.New("MUNGE on the gateway's host gives no answer")

// badMunge is a credential that proves nothing.
type badMunge struct {
	cause string // for the audit log
	hint  string // for the caller, where there is a remedy
}

func (b *badMunge) Error() string { return "the MUNGE credential was refused: " + b.cause }

// unmunger has this host's MUNGE verify credentials, a few at a time.
type unmunger struct {
	command string
	options []string // before ours; a munged that isn't on the usual socket needs one
	slots   chan struct{}

	mu       sync.Mutex
	downSaid time.Time
}

func newUnmunger(command string, options ...string) *unmunger {
	if command == "" {
		command = "unmunge"
	}
	return &unmunger{command: command, options: options, slots: make(chan struct{}, unmungeAtATime)}
}

// sayDown tells the log now and then what MUNGE's silence means.
func (u *unmunger) sayDown(log zerolog.Logger, err error, text string) {
	u.mu.Lock()
	now := time.Now()
	say := now.Sub(u.downSaid) > mungeDownEvery
	if say {
		u.downSaid = now
	}
	u.mu.Unlock()
	if say {
		log.Error().Err(err).Msg(text)
	}
}

// metadata are the keys that are asked for.
const metadata = "STATUS,ENCODE_HOST,TTL,UID,GID,LENGTH"

// verify tells whose a credential is. It must have been made for this connection: its payload says so.
func (u *unmunger) verify(ctx context.Context, line, payload []byte) (caller, error) {
	if !munge.Is(line) {
		return caller{}, &badMunge{cause: "malformed"}
	}
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	case <-ctx.Done():
		return caller{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, unmungeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.command, append(slices.Clip(u.options), "--numeric", "--keys="+metadata)...)
	cmd.WaitDelay = unmungeExitsAfter
	cmd.Stdin = bytes.NewReader(append(line, '\n'))
	out, words := capped.Buffer{Most: maxUnmungeOutput}, capped.Buffer{Most: maxUnmungeWords}
	cmd.Stdout, cmd.Stderr = &out, &words
	if err := cmd.Run(); err != nil {
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return caller{}, ctx.Err()
		case ctx.Err() != nil:
			return caller{}, fmt.Errorf("%w: %s ran until its deadline", errMungeDown, u.command)
		case cmd.ProcessState == nil:
			return caller{}, fmt.Errorf("%w: %w", errMungeDown, err)
		}
		return caller{}, verdictOf(cmd.ProcessState.ExitCode(), fmt.Sprintf("%s: %v: %s", u.command, err, clean(words.String())))
	}
	return readMunge(out.Bytes(), payload)
}

// verdictOf an exit code other than 0.
func verdictOf(code int, text string) error {
	switch {
	case code == mungeExpired, code == mungeRewound:
		return &badMunge{cause: "expired", hint: fmt.Sprintf("the clocks of this host and of the gateway's may be %s or more apart", munge.TTL)}
	case code == mungeReplayed:
		return &badMunge{cause: "replayed"}
	case code == mungeBadLength, code >= mungeBadFirst && code <= mungeBadLast:
		return &badMunge{cause: "invalid", hint: "this host and the gateway's may have different MUNGE keys"}
	}
	return fmt.Errorf("%w: %s", errMungeDown, text)
}

// readMunge reads what unmunge printed of a good credential: a "KEY: value" a line, an empty line, the payload.
func readMunge(out, payload []byte) (caller, error) {
	head, body, ok := bytes.Cut(out, []byte("\n\n"))
	if !ok {
		return caller{}, fmt.Errorf("%w: what unmunge printed can't be read", errMungeDown)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(head)) {
		key, value, ok := strings.Cut(line, ":")
		if _, twice := values[key]; !ok || twice {
			return caller{}, fmt.Errorf("%w: what unmunge printed can't be read", errMungeDown)
		}
		values[key] = strings.TrimSpace(value)
	}
	number := func(key string) uint32 {
		n, err := strconv.ParseUint(values[key], 10, 32)
		if err != nil {
			ok = false
		}
		return uint32(n)
	}
	status, ttl, uid, gid, length := number("STATUS"), number("TTL"), number("UID"), number("GID"), number("LENGTH")
	switch {
	case !ok || len(values) != strings.Count(metadata, ",")+1 || int(length) != len(body):
		return caller{}, fmt.Errorf("%w: what unmunge printed can't be read", errMungeDown)
	case status != 0:
		return caller{}, verdictOf(int(status), "unmunge says status "+values["STATUS"]+" and ended with 0")
	case time.Duration(ttl)*time.Second > munge.TTL:
		return caller{}, &badMunge{cause: "lives too long"}
	case subtle.ConstantTimeCompare(body, payload) != 1:
		return caller{}, &badMunge{cause: "made for another connection"}
	}
	return caller{UID: int(uid), GID: gid, Host: clean(values["ENCODE_HOST"])}, nil
}
