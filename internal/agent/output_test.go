package agent

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
)

// sink is a scheduler's file: it takes text, and may be slow.
type sink struct {
	mu   sync.Mutex
	text strings.Builder
	hold chan struct{} // nil: takes at once
}

func (s *sink) Write(p []byte) (int, error) {
	if s.hold != nil {
		<-s.hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// stream is an output with the command's end of its stdout.
type stream struct {
	*output
	in       *os.File
	file     *sink
	copied   *sink
	progress chan wire.ProgressReport
}

func newStream(t *testing.T, hold chan struct{}) *stream {
	t.Helper()
	s := &stream{file: &sink{hold: hold}, copied: &sink{}, progress: make(chan wire.ProgressReport, 100)}
	s.output = &output{
		stdout: s.file, stderr: &sink{},
		copy:     func(f wire.Frame) { _, _ = s.copied.Write(f.Payload) },
		progress: func(r wire.ProgressReport) { s.progress <- r },
	}
	cmd := &exec.Cmd{}
	require.NoError(t, s.attach(cmd))
	s.in = os.NewFile(uintptr(dup(t, cmd.Stdout.(*os.File))), "stdout")
	s.started()
	return s
}

func (s *stream) say(t *testing.T, text string) {
	t.Helper()
	_, err := s.in.WriteString(text)
	require.NoError(t, err)
}

func (s *stream) shows(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.file.String() == text }, 5*time.Second, time.Millisecond, "%q, not %q", s.file, text)
}

func TestOutputForwardsLines(t *testing.T) {
	s := newStream(t, nil)
	s.say(t, "one\ntw")
	s.shows(t, "one\ntw") // the unfinished line comes after a while
	s.say(t, "o\n@openai4s:progress {\"fraction\":0.5}\nthree\n")
	s.shows(t, "one\ntwo\nthree\n")
	assert.Equal(t, 0.5, (<-s.progress).Fraction)
	s.say(t, `@openai4s:progress {"frac`)
	s.say(t, "tion\":0.7}\n@openai4s:progress nonsense\n")
	assert.Equal(t, 0.7, (<-s.progress).Fraction, "a progress line is not torn")
	s.shows(t, "one\ntwo\nthree\n@openai4s:progress nonsense\n")
	s.say(t, "@openai4s:progress unfinished")
	s.in.Close()
	s.finish(5 * time.Second)
	want := "one\ntwo\nthree\n@openai4s:progress nonsense\n@openai4s:progress unfinished"
	assert.Equal(t, want, s.file.String())
	assert.Equal(t, want, s.copied.String(), "the copy is the same")
}

func TestOutputLongLines(t *testing.T) {
	s := newStream(t, nil)
	long := strings.Repeat("x", 3*maxLine+17)
	go func() {
		_, _ = s.in.WriteString(long + "\n")
		s.in.Close()
	}()
	s.shows(t, long+"\n")
	s.finish(5 * time.Second)
}

// A file that is slow to take the output loses nothing of it, although the command has ended.
func TestOutputOfASlowFileIsWhole(t *testing.T) {
	hold := make(chan struct{})
	s := newStream(t, hold)
	s.say(t, "first\n")
	s.say(t, "second\n")
	text := strings.Repeat("line\n", 4000) // less than a pipe holds
	s.say(t, text+"@openai4s:progress {\"fraction\":1}\n")
	s.in.Close()
	over := make(chan struct{})
	go func() { s.finish(0); close(over) }() // the time to read is over at once
	require.Eventually(t, s.finishing, 5*time.Second, time.Millisecond)
	close(hold)
	<-over
	assert.Equal(t, "first\nsecond\n"+text, s.file.String())
	assert.Equal(t, 1.0, (<-s.progress).Fraction)
}

// A process that keeps the stream open after the command's end isn't waited for.
func TestOutputHeldOpen(t *testing.T) {
	s := newStream(t, nil)
	defer s.in.Close()
	s.say(t, "text\n")
	s.shows(t, "text\n")
	start := time.Now()
	s.finish(50 * time.Millisecond)
	assert.Less(t, time.Since(start), 5*time.Second)
}

func TestCopiesAreDroppedWithAMark(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	l := &link{conn: near}
	defer l.close()
	block := make([]byte, 64<<10)
	l.send(wire.Frame{Type: wire.Heartbeat}) // it is on its way, and nobody reads
	require.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.writing && len(l.queue) == 0 }, 5*time.Second, time.Millisecond)
	for range 10 {
		l.sendCopy(wire.Frame{Type: wire.Stdout, Payload: block})
	}
	progress, err := wire.JSON(wire.Progress, wire.ProgressReport{Fraction: 0.5})
	require.NoError(t, err)
	l.sendCopy(progress) // no room for it either
	l.mu.Lock()
	assert.Equal(t, 6*len(block), l.dropped, "progress is no output")
	l.mu.Unlock()

	frames := make(chan wire.Frame, 100)
	go func() {
		defer close(frames)
		for {
			f, err := wire.ReadFrame(far)
			if err != nil {
				return
			}
			frames <- f
		}
	}()
	for range 5 { // the heartbeat, and four blocks
		<-frames
	}
	require.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return !l.writing }, 5*time.Second, time.Millisecond)
	l.sendCopy(progress)
	f := <-frames
	require.Equal(t, wire.Progress, f.Type)
	require.NoError(t, f.Decode(new(wire.ProgressReport)), "a mark of dropped output is never sent as progress")
	l.sendCopy(wire.Frame{Type: wire.Stderr, Payload: []byte("on\n")})
	assert.Equal(t, "\n[openai4s: 393216 bytes dropped]\n", string((<-frames).Payload))
	assert.Equal(t, "on\n", string((<-frames).Payload))
}
