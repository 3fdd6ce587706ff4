package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadHeader reads the header alone, with the same checks as Read.
func ReadHeader(path string) (Header, error) {
	f, h, err := open(path, os.Geteuid())
	if err != nil {
		return Header{}, err
	}
	f.Close()
	return h, nil
}

// Read returns the header and rank r's credential line, without padding or newline.
func Read(path string, rank int) (Header, []byte, error) {
	f, h, err := open(path, os.Geteuid())
	if err != nil {
		return Header{}, nil, err
	}
	defer f.Close()
	if rank < 0 || rank >= h.Size {
		return Header{}, nil, fmt.Errorf("%w: %s has ranks 0 to %d, not %d; is it this job's bundle?", ErrRank, path, h.Size-1, rank)
	}
	var block [LineSize]byte
	if _, err := f.ReadAt(block[:], offset(rank)); err != nil {
		return Header{}, nil, fmt.Errorf("reading rank %d's line in bundle %s: %w", rank, path, err)
	}
	line, ok := unpad(block[:])
	if !ok || bytes.ContainsAny(line, "\r\n") {
		return Header{}, nil, fmt.Errorf("%w: rank %d's line in %s is damaged; submit again", ErrFormat, rank, path)
	}
	return h, line, nil
}

// open checks the open file, not its name, so that nothing can be swapped in between, and reads the header.
func open(path string, uid int) (*os.File, Header, error) {
	// O_NONBLOCK: opening a pipe must not hang.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, Header{}, fmt.Errorf("%w: %s is a symbolic link; name the file itself", ErrKind, path)
	}
	if err != nil {
		return nil, Header{}, fmt.Errorf("opening bundle: %w", err)
	}
	h, err := examine(f, path, uid)
	if err != nil {
		f.Close()
		return nil, Header{}, err
	}
	return f, h, nil
}

func examine(f *os.File, path string, uid int) (Header, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Header{}, fmt.Errorf("examining bundle %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Header{}, fmt.Errorf("%w: %s; name the file itself", ErrKind, path)
	}
	if int(st.Uid) != uid {
		return Header{}, fmt.Errorf("%w: %s is owned by uid %d, this process runs as %d; submit as the user who runs the job", ErrOwner, path, st.Uid, uid)
	}
	// The list before the mode: where there is one, the mode's group bits are its mask, and chmod isn't the whole remedy.
	if err := checkACL(f, path, uid); err != nil {
		return Header{}, err
	}
	if st.Mode&0o077 != 0 {
		return Header{}, fmt.Errorf("%w: %s has mode %04o; chmod 600 it, and submit again if others may have read it", ErrMode, path, st.Mode&0o7777)
	}
	if st.Size < fileSize(1) || st.Size > fileSize(MaxRanks) {
		return Header{}, fmt.Errorf("%w: %s has %d bytes; submit again", ErrFormat, path, st.Size)
	}
	var block [HeaderSize]byte
	if _, err := f.ReadAt(block[:], 0); err != nil && err != io.EOF {
		return Header{}, fmt.Errorf("reading the header of bundle %s: %w", path, err)
	}
	h, err := decodeHeader(block[:])
	if err != nil {
		return Header{}, fmt.Errorf("reading bundle %s: %w; submit again", path, err)
	}
	if st.Size != fileSize(h.Size) {
		return Header{}, fmt.Errorf("%w: %s has %d bytes, %d ranks need %d; submit again", ErrFormat, path, st.Size, h.Size, fileSize(h.Size))
	}
	return h, nil
}
