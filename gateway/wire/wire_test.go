package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var announced = Agent{
	Protocol: Protocol, Version: "1.4", Attempt: strings.Repeat("0f", 32), Job: "12", Host: "n1", Address: "10.0.0.1",
	LocalRank: 1, NodeRank: 2, FreePort: 4711,
}

const credentialLine = `{"allocation_id": "alloc_1", "epoch": 0, "rank": 0, "expires_at": 1.5, "nonce": "n", "signature": "s"}`

func TestHelloRoundTrip(t *testing.T) {
	line, err := AppendHello([]byte(credentialLine), announced)
	require.NoError(t, err)
	for name, r := range map[string]io.Reader{
		"at once":           bytes.NewReader(append(line, "rest"...)),
		"a byte at a time":  iotest.OneByteReader(bytes.NewReader(append(line, "rest"...))),
		"an end with bytes": iotest.DataErrReader(bytes.NewReader(append(line, "rest"...))),
	} {
		t.Run(name, func(t *testing.T) {
			h, rest, err := ReadHello(r)
			require.NoError(t, err)
			require.NotNil(t, h.Agent)
			assert.Equal(t, announced, *h.Agent)
			assert.Equal(t, strings.TrimSuffix(string(line), "\n"), string(h.Line))
			left, err := io.ReadAll(r)
			require.NoError(t, err)
			assert.Equal(t, "rest", string(rest)+string(left), "nothing behind the line is lost")
		})
	}
}

func TestReadHello(t *testing.T) {
	with := func(edit func(*Agent)) string {
		a := announced
		edit(&a)
		line, err := AppendHello([]byte(credentialLine), a)
		require.NoError(t, err)
		return string(line)
	}
	for _, tt := range []struct {
		name  string
		in    string
		err   error
		agent bool
	}{
		{"no announcement", credentialLine + "\n", nil, false},
		{"garbage is the credential's affair", "garbage\n", nil, false},
		{"a null announcement", `{"agent": null}` + "\n", nil, false},
		{"the word in a string", `{"nonce": "\"agent\""}` + "\n", nil, false},
		{"announced", with(func(*Agent) {}), nil, true},
		{"another protocol", with(func(a *Agent) { a.Protocol = "openai4s/2" }), ErrHello, false},
		{"a short attempt", with(func(a *Agent) { a.Attempt = "00" }), ErrHello, false},
		{"an attempt that is no hex", with(func(a *Agent) { a.Attempt = strings.Repeat("z", 64) }), ErrHello, false},
		{"a long name", with(func(a *Agent) { a.Host = strings.Repeat("h", 1025) }), ErrHello, false},
		{"an attestation as long as may be", with(func(a *Agent) { a.Attest = strings.Repeat("A", MaxAttest) }), nil, true},
		{"a longer one", with(func(a *Agent) { a.Attest = strings.Repeat("A", MaxAttest+1) }), ErrHello, false},
		{"twice", `{"agent": null, "agent": null}` + "\n", ErrHello, false},
		{"the wrong type", `{"agent": 7}` + "\n", ErrHello, false},
		{"deep", `{"agent": ` + strings.Repeat("[", 30000) + strings.Repeat("]", 30000) + "}\n", ErrHello, false},
		{"as long as may be", strings.Repeat("x", MaxHello-1) + "\n", nil, false},
		{"a byte too long", strings.Repeat("x", MaxHello) + "\n", ErrHelloTooLong, false},
		{"no end", strings.Repeat("x", 3*MaxHello), ErrHelloTooLong, false},
		{"nothing", "", io.EOF, false},
		{"half a line", "{", io.ErrUnexpectedEOF, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _, err := ReadHello(strings.NewReader(tt.in))
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.agent, h.Agent != nil)
		})
	}
}

func TestAppendHelloTakesOneObject(t *testing.T) {
	for _, c := range []string{"", "{", "[]", "{}{}", "{}\n{}", `{"a":}`} {
		_, err := AppendHello([]byte(c), announced)
		assert.ErrorIs(t, err, ErrHello, "%q", c)
	}
	_, err := AppendHello([]byte(`{"a": "`+strings.Repeat("x", MaxHello)+`"}`), announced)
	assert.ErrorIs(t, err, ErrHelloTooLong)
}

func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var sent []Frame
		for range rapid.IntRange(0, 5).Draw(t, "frames") {
			f := Frame{Type: Type(rapid.Byte().Draw(t, "type")), Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")}
			sent = append(sent, f)
			stream = f.Append(stream)
		}
		r := iotest.HalfReader(bytes.NewReader(stream))
		for _, want := range sent {
			got, err := ReadFrame(r)
			if err != nil || got.Type != want.Type || !bytes.Equal(got.Payload, want.Payload) {
				t.Fatalf("%v came back as %v, %v", want, got, err)
			}
		}
		if _, err := ReadFrame(r); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestFrameOfTheLargestSize(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteFrame(&b, Frame{Type: Stdout, Payload: make([]byte, MaxFrame)}))
	f, err := ReadFrame(&b)
	require.NoError(t, err)
	assert.Len(t, f.Payload, MaxFrame)
	assert.ErrorIs(t, WriteFrame(&b, Frame{Payload: make([]byte, MaxFrame+1)}), ErrFrameTooLong)
	_, err = JSON(Start, StartOrder{Workdir: strings.Repeat("x", MaxFrame)})
	assert.ErrorIs(t, err, ErrFrameTooLong)
}

// What is only announced costs no memory.
func TestAnnouncedLengthTakesNoMemory(t *testing.T) {
	announce := func(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{byte(Stdout)}, n) }
	_, err := ReadFrame(bytes.NewReader(announce(4<<30 - 1)))
	assert.ErrorIs(t, err, ErrFrameTooLong)
	_, err = ReadFrame(bytes.NewReader(announce(MaxFrame + 1)))
	assert.ErrorIs(t, err, ErrFrameTooLong)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		_, err := ReadFrame(bytes.NewReader(announce(MaxFrame)))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(20<<20), "a hundred announcements of 1 MiB")
}

func TestCutFrames(t *testing.T) {
	whole := Frame{Type: Exit, Payload: []byte("{}")}.Append(nil)
	for n := 1; n < len(whole); n++ {
		_, err := ReadFrame(bytes.NewReader(whole[:n]))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes", n)
	}
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   string
		want Answer
		err  error
	}{
		{"accepted", string(Accepted("kernel:1", nil)), Answer{OK: true, Generation: "kernel:1"}, nil},
		{"accepted, with the next credential", string(Accepted("kernel:1", []byte(credentialLine))), Answer{OK: true, Generation: "kernel:1", Resume: credentialLine}, nil},
		{"refused", Refused, Answer{Error: "refused"}, nil},
		{"nothing", "", Answer{}, io.EOF},
		{"half", `{"ok": tr`, Answer{}, io.ErrUnexpectedEOF},
		{"garbage", "x\n", Answer{}, ErrAnswer},
		{"endless", strings.Repeat("x", 100<<10), Answer{}, ErrAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := ReadAnswer(strings.NewReader(tt.in))
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want, a)
		})
	}
	r := strings.NewReader(Refused + "\x03frame")
	_, err := ReadAnswer(r)
	require.NoError(t, err)
	left, _ := io.ReadAll(r)
	assert.Equal(t, "\x03frame", string(left), "no byte of a frame is taken")
}

func FuzzReadHello(f *testing.F) {
	line, err := AppendHello([]byte(credentialLine), announced)
	require.NoError(f, err)
	f.Add(line)
	f.Add([]byte(credentialLine + "\nrest"))
	f.Add([]byte(`{"agent":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, rest, err := ReadHello(bytes.NewReader(in))
		if err != nil {
			if h.Agent != nil {
				t.Fatalf("an announcement beside %v", err)
			}
			return
		}
		if len(h.Line)+1+len(rest) > len(in) || !bytes.Equal(in[:len(h.Line)], h.Line) || in[len(h.Line)] != '\n' {
			t.Fatalf("line %q and rest %q of %q", h.Line, rest, in)
		}
		if h.Agent != nil {
			if _, err := h.Agent.AttemptSecret(); err != nil || h.Agent.Protocol != Protocol {
				t.Fatalf("taken: %+v", h.Agent)
			}
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	f.Add(Frame{Type: Exit, Payload: []byte(`{"seq":1}`)}.Append(nil))
	f.Add([]byte{byte(Stdout), 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			before := r.Len()
			fr, err := ReadFrame(r)
			if err != nil {
				return
			}
			if got := fr.Append(nil); !bytes.Equal(got, in[len(in)-before:len(in)-before+len(got)]) {
				t.Fatalf("%q was read as %v", in, fr)
			}
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte(Refused))
	f.Add(Accepted("kernel:1", []byte(credentialLine)))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, err := ReadAnswer(bytes.NewReader(in))
		if err == nil && !bytes.Contains(in, []byte("\n")) {
			t.Fatalf("an answer without its end: %q", in)
		}
		if err != nil && !errors.Is(err, ErrAnswer) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%v", err)
		}
	})
}
