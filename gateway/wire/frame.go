// Package wire is what passes between an agent and the gateway: the hello line, the answer, the frames, and their
// limits.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// MaxFrame bounds a frame's payload.
const MaxFrame = 1 << 20

// Type of a frame. Unknown types are skipped.
type Type byte

// The frames to a rank (0x…) and from it (0x4…).
const (
	Gang       Type = 0x02 // GangInfo
	Start      Type = 0x03 // StartOrder
	Stop       Type = 0x04 // StopOrder
	Signal     Type = 0x05 // SignalOrder
	Stdin      Type = 0x06 // raw bytes; empty: end of input
	Ack        Type = 0x07 // AckOrder
	Credential Type = 0x08 // a credential line, raw
	Window     Type = 0x09 // WindowUpdate

	Status     Type = 0x41 // StatusReport
	Stdout     Type = 0x42 // raw bytes
	Stderr     Type = 0x43 // raw bytes
	Progress   Type = 0x44 // ProgressReport
	Exit       Type = 0x45 // ExitReport
	Heartbeat  Type = 0x46 // empty
	RankWindow Type = 0x47 // WindowUpdate
)

// Frame is one message: u8 type, u32 big-endian length, payload.
type Frame struct {
	Type    Type
	Payload []byte
}

const headerLen = 5

// ReadFrame reads one frame. A length over MaxFrame is ErrFrameTooLong; memory is taken as bytes arrive, so that a
// peer that only announces costs nothing.
func ReadFrame(r io.Reader) (Frame, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return Frame{}, fmt.Errorf("%w: %d bytes announced", ErrFrameTooLong, n)
	}
	f := Frame{Type: Type(head[0])}
	const step = 64 << 10
	for got := 0; got < int(n); {
		want := min(int(n)-got, step)
		f.Payload = append(f.Payload, make([]byte, want)...)
		if _, err := io.ReadFull(r, f.Payload[got:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
		got += want
	}
	return f, nil
}

// Append adds the frame's bytes to dst.
func (f Frame) Append(dst []byte) []byte {
	dst = append(dst, byte(f.Type))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.Payload)))
	return append(dst, f.Payload...)
}

// WriteFrame writes one frame with one Write.
func WriteFrame(w io.Writer, f Frame) error {
	if len(f.Payload) > MaxFrame {
		return fmt.Errorf("%w: %d bytes", ErrFrameTooLong, len(f.Payload))
	}
	_, err := w.Write(f.Append(make([]byte, 0, headerLen+len(f.Payload))))
	return err
}

// JSON makes a frame with a JSON payload.
func JSON(t Type, payload any) (Frame, error) {
	b, err := json.Marshal(payload)
	if err != nil {
		return Frame{}, fmt.Errorf("writing frame %#02x: %w", byte(t), err)
	}
	if len(b) > MaxFrame {
		return Frame{}, fmt.Errorf("%w: %d bytes", ErrFrameTooLong, len(b))
	}
	return Frame{Type: t, Payload: b}, nil
}

// Decode reads a frame's JSON payload.
func (f Frame) Decode(into any) error {
	if err := json.Unmarshal(f.Payload, into); err != nil {
		return fmt.Errorf("reading frame %#02x: %w", byte(f.Type), err)
	}
	return nil
}
