package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/gateway/wire"
)

// Progress lines are for the gateway, not for the log.
var progressMarks = [][]byte{[]byte("@openai4s:progress "), []byte("@lspo:progress ")}

const (
	// maxLine is how much of an unfinished line is held back so that lines of several ranks aren't torn.
	maxLine = 64 << 10
	// maxPipe is the most that a pipe holds.
	maxPipe = 1 << 20
	// lineWait is how long it is held back.
	lineWait = 150 * time.Millisecond
)

// output forwards what the command writes: to this process's own streams, which are the scheduler's files, and as a
// copy to whoever takes it. Taking never blocks.
type output struct {
	stdout, stderr io.Writer
	copy           func(wire.Frame)
	progress       func(wire.ProgressReport)

	readers []*os.File
	writers []*os.File
	wg      sync.WaitGroup

	mu    sync.Mutex
	final time.Time // when reading ends, set by finish
}

// attach gives the command its streams.
func (o *output) attach(cmd *exec.Cmd) error {
	for _, s := range []struct {
		kind wire.Type
		to   io.Writer
		set  func(*os.File)
	}{
		{wire.Stdout, o.stdout, func(f *os.File) { cmd.Stdout = f }},
		{wire.Stderr, o.stderr, func(f *os.File) { cmd.Stderr = f }},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			o.started()
			return fmt.Errorf("making the command's streams: %w", err)
		}
		s.set(w)
		o.readers, o.writers = append(o.readers, r), append(o.writers, w)
		o.wg.Go(func() { o.forward(r, s.kind, s.to) })
	}
	return nil
}

// started closes our copies of the command's ends.
func (o *output) started() {
	for _, w := range o.writers {
		w.Close()
	}
	o.writers = nil
}

// finish waits for the streams' ends, at most wait: a process in uninterruptible sleep may hold them.
func (o *output) finish(wait time.Duration) {
	o.mu.Lock()
	o.final = time.Now().Add(wait)
	for _, r := range o.readers {
		_ = r.SetReadDeadline(o.final)
	}
	o.mu.Unlock()
	o.wg.Wait()
	for _, r := range o.readers {
		r.Close()
	}
}

// setDeadline bounds the next read: by the end, if that has come, or by how long an unfinished line is held back.
func (o *output) setDeadline(r *os.File, held bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.final.IsZero():
		_ = r.SetReadDeadline(o.final)
	case held:
		_ = r.SetReadDeadline(time.Now().Add(lineWait))
	default:
		_ = r.SetReadDeadline(time.Time{})
	}
}

func (o *output) finishing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.final.IsZero()
}

// forward passes whole lines on at once and unfinished ones after lineWait, unless they begin like a progress line.
func (o *output) forward(r *os.File, kind wire.Type, to io.Writer) {
	buf := make([]byte, 0, maxLine)
	for {
		o.setDeadline(r, len(buf) > 0 && !mayBeProgress(buf))
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = o.lines(buf[:len(buf)+n], kind, to)
		late := errors.Is(err, os.ErrDeadlineExceeded) && !o.finishing()
		switch {
		case err != nil && !late:
			o.emit(o.lines(append(buf, remaining(r)...), kind, to), kind, to)
			return
		case len(buf) == cap(buf), late && !mayBeProgress(buf):
			o.emit(buf, kind, to)
			buf = buf[:0]
		}
	}
}

// remaining is what a pipe still holds once the time to read it is over: whoever reads our output may be slow, and the
// command has written this all the same.
func remaining(r *os.File) []byte {
	_ = r.SetReadDeadline(time.Time{})
	raw, err := r.SyscallConn()
	if err != nil {
		return nil
	}
	var left []byte
	_ = raw.Read(func(fd uintptr) bool {
		buf := make([]byte, maxLine)
		for len(left) < maxPipe { // whoever still writes now must not keep us
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 {
				break // its end, or nothing more for now
			}
			left = append(left, buf[:n]...)
		}
		return true
	})
	return left
}

// lines passes on every whole line and returns the rest, moved to the front.
func (o *output) lines(buf []byte, kind wire.Type, to io.Writer) []byte {
	from := 0 // of what has to be passed on
	at := 0
	for {
		i := bytes.IndexByte(buf[at:], '\n')
		if i < 0 {
			break
		}
		line := buf[at : at+i]
		if r, ok := parseProgress(line); ok {
			o.emit(buf[from:at], kind, to)
			o.progress(r)
			from = at + i + 1
		}
		at += i + 1
	}
	o.emit(buf[from:at], kind, to)
	return append(buf[:0], buf[at:]...)
}

func (o *output) emit(p []byte, kind wire.Type, to io.Writer) {
	if len(p) == 0 {
		return
	}
	_, _ = to.Write(p) // the scheduler's file may be full or gone; the command goes on
	o.copy(wire.Frame{Type: kind, Payload: bytes.Clone(p)})
}

func mayBeProgress(p []byte) bool {
	for _, m := range progressMarks {
		if n := min(len(p), len(m)); bytes.Equal(p[:n], m[:n]) {
			return true
		}
	}
	return false
}

// parseProgress reads a progress line; a malformed one is ordinary output.
func parseProgress(line []byte) (wire.ProgressReport, bool) {
	for _, m := range progressMarks {
		text, ok := bytes.CutPrefix(line, m)
		if !ok {
			continue
		}
		var p struct {
			Fraction *float64 `json:"fraction"`
			Phase    string   `json:"phase"`
		}
		if json.Unmarshal(text, &p) != nil || p.Fraction == nil || *p.Fraction < 0 || *p.Fraction > 1 {
			return wire.ProgressReport{}, false
		}
		const maxPhase = 64
		if len(p.Phase) > maxPhase {
			p.Phase = p.Phase[:maxPhase]
		}
		return wire.ProgressReport{Fraction: *p.Fraction, Phase: p.Phase}, true
	}
	return wire.ProgressReport{}, false
}
