package bundle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var pin = "sha256:" + strings.Repeat("0f", 32)

func header(size int) Header {
	return Header{
		Format: Format, Workload: "wl_0123456789ab", Allocation: "alloc_0123456789ab", Epoch: 2, Size: size, RanksPerNode: 1,
		Addresses: []string{"head-ib0:8761", "[fd00::1]:8761"}, TLS: "on", Pins: []string{pin}, DialTimeout: "10m0s",
	}
}

func lines(size int) [][]byte {
	out := make([][]byte, size)
	for rank := range out {
		out[rank] = fmt.Appendf(nil, `{"rank": %d, "nonce": "secret-of-%d"}`, rank, rank)
	}
	return out
}

func encode(t testing.TB, size int) []byte {
	t.Helper()
	data, err := Encode(header(size), lines(size))
	require.NoError(t, err)
	return data
}

func written(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gang-2.bundle")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func TestLayout(t *testing.T) {
	data := encode(t, 3)
	require.Len(t, data, 4096+3*512)
	head, rest, found := bytes.Cut(data[:4096], []byte{0})
	require.True(t, found)
	require.Empty(t, bytes.Trim(rest, "\x00"))
	require.Equal(t, `{"format":1,"workload":"wl_0123456789ab","allocation":"alloc_0123456789ab","epoch":2,"size":3,"ranks_per_node":1,`+
		`"addresses":["head-ib0:8761","[fd00::1]:8761"],"tls":"on","pins":["`+pin+`"],"dial_timeout":"10m0s"}`, string(head))
	for rank := range 3 {
		block := data[4096+512*rank:][:512]
		require.Equal(t, string(lines(3)[rank]), string(bytes.TrimRight(block, "\x00")))
	}
}

func TestWriteThenRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "wl_1", "gang-2.bundle")
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Dir(path)), 0o755))
	for _, size := range []int{1, 7, 4096} { // a second Write replaces the first
		require.NoError(t, Write(path, encode(t, size)))
		for _, rank := range []int{0, size / 2, size - 1} {
			h, line, err := Read(path, rank)
			require.NoError(t, err)
			require.Equal(t, header(size), h)
			require.Equal(t, lines(size)[rank], line)
		}
		h, err := ReadHeader(path)
		require.NoError(t, err)
		require.Equal(t, header(size), h)
	}
	for p, mode := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): fs.ModeDir | 0o700} {
		fi, err := os.Stat(p)
		require.NoError(t, err)
		require.Equal(t, mode, fi.Mode(), p)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file stays")
}

// What older agents don't know of, they pass over.
func TestAttestationInTheHeader(t *testing.T) {
	h := header(1)
	h.Attest, h.Munge = AttestMunge, "/opt/munge/bin/munge"
	data, err := Encode(h, lines(1))
	require.NoError(t, err)
	got, err := ReadHeader(written(t, data))
	require.NoError(t, err)
	require.Equal(t, h, got)
	newer := bytes.Replace(data[:HeaderSize:HeaderSize], []byte(`"attest"`), []byte(`"future"`), 1)
	got, err = decodeHeader(newer)
	require.NoError(t, err)
	require.Empty(t, got.Attest)
}

func TestWriteIgnoresUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "new", "gang-2.bundle")
	require.NoError(t, Write(path, encode(t, 1)))
	_, _, err := Read(path, 0)
	require.NoError(t, err)
}

func TestWriteIntoNowhere(t *testing.T) {
	file := written(t, nil)
	err := Write(filepath.Join(file, "gang-2.bundle"), encode(t, 1))
	require.ErrorContains(t, err, file)
}

func TestEncodeRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Header)
		lines  func([][]byte) [][]byte
		says   string
	}{
		{"format", func(h *Header) { h.Format = 2 }, nil, "format 2"},
		{"no workload", func(h *Header) { h.Workload = "" }, nil, "workload"},
		{"no allocation", func(h *Header) { h.Allocation = "" }, nil, "allocation"},
		{"negative epoch", func(h *Header) { h.Epoch = -1 }, nil, "epoch -1"},
		{"no ranks", func(h *Header) { h.Size = 0 }, nil, "size 0"},
		{"too many ranks", func(h *Header) { h.Size = MaxRanks + 1 }, nil, "size"},
		{"ranks per node", func(h *Header) { h.RanksPerNode = 3 }, nil, "3 ranks per node"},
		{"nowhere to dial", func(h *Header) { h.Addresses = nil }, nil, "no address"},
		{"tls neither", func(h *Header) { h.TLS = "optional" }, nil, `"optional"`},
		{"tls without pin", func(h *Header) { h.Pins = nil }, nil, "pin"},
		{"three pins", func(h *Header) { h.Pins = []string{pin, pin, pin} }, nil, "3 pins"},
		{"pin of another kind", func(h *Header) { h.Pins = []string{"sha1:00"} }, nil, "sha1:00"},
		{"short pin", func(h *Header) { h.Pins = []string{pin[:20]} }, nil, "64 hex"},
		{"dial timeout", func(h *Header) { h.DialTimeout = "soon" }, nil, "soon"},
		{"dial timeout zero", func(h *Header) { h.DialTimeout = "0s" }, nil, "dial_timeout"},
		{"attestation of another kind", func(h *Header) { h.Attest = "tpm" }, nil, "older than the gateway"},
		{"attestation without TLS", func(h *Header) { h.Attest, h.TLS = AttestMunge, "off" }, nil, "tls is off"},
		{"munge by name", func(h *Header) { h.Attest, h.Munge = AttestMunge, "munge" }, nil, "absolute"},
		{"header too long", func(h *Header) { h.Addresses = []string{strings.Repeat("a", HeaderSize)} }, nil, "shorten"},
		{"header not UTF-8", func(h *Header) { h.Workload = "\xff" }, nil, "UTF-8"},
		{"a line short", nil, func(l [][]byte) [][]byte { return l[1:] }, "1 lines for 2 ranks"},
		{"a line empty", nil, func(l [][]byte) [][]byte { l[1] = nil; return l }, "rank 1"},
		{"a line too long", nil, func(l [][]byte) [][]byte { l[1] = bytes.Repeat([]byte("x"), LineSize+1); return l }, "513 bytes"},
		{"a line with an end", nil, func(l [][]byte) [][]byte { l[1] = []byte("x\n"); return l }, "rank 1"},
		{"a line with a NUL", nil, func(l [][]byte) [][]byte { l[1] = []byte("x\x00y"); return l }, "rank 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, l := header(2), lines(2)
			if tt.change != nil {
				tt.change(&h)
			}
			if tt.lines != nil {
				l = tt.lines(l)
			}
			_, err := Encode(h, l)
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), "secret-of")
		})
	}
	full := lines(1)
	full[0] = bytes.Repeat([]byte("x"), LineSize)
	data, err := Encode(header(1), full)
	require.NoError(t, err)
	_, line, err := Read(written(t, data), 0)
	require.NoError(t, err)
	require.Equal(t, full[0], line)
}

func TestReadMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gang-2.bundle")
	_, _, err := Read(path, 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, path)
	_, err = ReadHeader(filepath.Join(filepath.Dir(path), "no", "such"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReadRank(t *testing.T) {
	path := written(t, encode(t, 2))
	for _, rank := range []int{-1, 2, 1 << 40} {
		_, _, err := Read(path, rank)
		require.ErrorIs(t, err, ErrRank)
		require.ErrorContains(t, err, path)
	}
}

func TestReadRefusesDamage(t *testing.T) {
	tests := map[string]func([]byte) []byte{
		"empty":                func([]byte) []byte { return nil },
		"cut in the header":    func(b []byte) []byte { return b[:4000] },
		"no ranks":             func(b []byte) []byte { return b[:4096] },
		"cut by one":           func(b []byte) []byte { return b[:len(b)-1] },
		"a rank too many":      func(b []byte) []byte { return append(b, make([]byte, 512)...) },
		"not JSON":             func(b []byte) []byte { b[0] = 'x'; return b },
		"padding written over": func(b []byte) []byte { b[4095] = 'x'; return b },
		"header blank":         func(b []byte) []byte { clear(b[:4096]); return b },
		"another format":       func(b []byte) []byte { return bytes.Replace(b, []byte(`"format":1`), []byte(`"format":2`), 1) },
		"another size":         func(b []byte) []byte { return bytes.Replace(b, []byte(`"size":2`), []byte(`"size":3`), 1) },
		"size beyond the bound": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"size":2,"ranks_per_node":1`), []byte(`"size":9999999,"ranks_per_`), 1)
		},
		"name twice": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"workload"`), []byte(`"tls":"off","workload"`), 1)[:len(b)]
		},
		"name in capitals":       func(b []byte) []byte { return bytes.Replace(b, []byte(`"tls"`), []byte(`"TLS"`), 1) },
		"rank blank":             func(b []byte) []byte { clear(b[4096:4608]); return b },
		"rank with a NUL inside": func(b []byte) []byte { b[4097] = 0; return b },
		"rank with a line end":   func(b []byte) []byte { b[4097] = '\n'; return b },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			path := written(t, damage(encode(t, 2)))
			_, _, err := Read(path, 0)
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, path)
			require.NotContains(t, err.Error(), "secret-of")
		})
	}
}

func TestReadRefusesWhatIsNoFile(t *testing.T) {
	real := written(t, encode(t, 1))
	dir := t.TempDir()
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	require.NoError(t, os.Symlink(real, link))
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	for _, path := range []string{link, pipe, dir} {
		_, _, err := Read(path, 0)
		require.ErrorIs(t, err, ErrKind)
		require.ErrorContains(t, err, path)
	}
}

func TestReadRefusesAnotherOwner(t *testing.T) {
	path := written(t, encode(t, 1))
	_, _, err := open(path, os.Geteuid()+1)
	require.ErrorIs(t, err, ErrOwner)
	require.ErrorContains(t, err, path)
}

// acl builds the attribute: tag, permissions, id.
func acl(entries ...[3]uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, uint16(e[0]))
		b = binary.LittleEndian.AppendUint16(b, uint16(e[1]))
		b = binary.LittleEndian.AppendUint32(b, e[2])
	}
	return b
}

const nobody = ^uint32(0)

// However the file came to be open to others, through the umask, the folder's group or a mask, it is refused with the
// reason and the remedy.
func TestCase54OpenToOthers(t *testing.T) {
	for _, mode := range []fs.FileMode{0o640, 0o620, 0o604, 0o602, 0o601, 0o610, 0o666, 0o644} {
		path := written(t, encode(t, 1))
		require.NoError(t, os.Chmod(path, mode))
		_, _, err := Read(path, 0)
		require.ErrorIs(t, err, ErrMode, "%o", mode)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, fmt.Sprintf("%04o", mode))
		require.ErrorContains(t, err, "chmod 600")
		_, err = ReadHeader(path)
		require.ErrorIs(t, err, ErrMode)
	}
	t.Run("through a list on the file", func(t *testing.T) {
		path := written(t, encode(t, 1))
		setACL(t, path, aclName, acl([3]uint32{aclUserObject, 6, nobody}, [3]uint32{aclUser, 4, 4242}, [3]uint32{aclGroupObject, 0, nobody}, [3]uint32{aclMask, 4, nobody}, [3]uint32{aclOther, 0, nobody}))
		_, _, err := Read(path, 0)
		require.ErrorIs(t, err, ErrACL)
		require.ErrorContains(t, err, "setfacl -b")
		require.ErrorContains(t, err, path)

		require.NoError(t, os.Chmod(path, 0o600)) // the mask is empty now, and with it the list
		_, _, err = Read(path, 0)
		require.NoError(t, err)
	})
	t.Run("through the folder's default list", func(t *testing.T) {
		dir := t.TempDir()
		setACL(t, dir, "system.posix_acl_default", acl([3]uint32{aclUserObject, 7, nobody}, [3]uint32{aclUser, 7, 4242}, [3]uint32{aclGroupObject, 7, nobody}, [3]uint32{aclMask, 7, nobody}, [3]uint32{aclOther, 5, nobody}))
		path := filepath.Join(dir, "gang-2.bundle")
		require.NoError(t, Write(path, encode(t, 1)))
		_, _, err := Read(path, 0)
		require.NoError(t, err, "what we write is private all the same")

		loose, err := os.Create(filepath.Join(dir, "copied"))
		require.NoError(t, err)
		_, err = loose.Write(encode(t, 1))
		require.NoError(t, err)
		require.NoError(t, loose.Close())
		_, _, err = Read(loose.Name(), 0)
		require.ErrorIs(t, err, ErrACL)
	})
}

func setACL(t *testing.T, path, name string, list []byte) {
	t.Helper()
	if err := unix.Setxattr(path, name, list, 0); err != nil {
		require.ErrorIs(t, err, unix.ENOTSUP)
		t.Skipf("the file system of %s has no access control lists", path)
	}
}

func TestPrivate(t *testing.T) {
	const me = 1000
	owner, other := [3]uint32{aclUserObject, 6, nobody}, [3]uint32{aclOther, 0, nobody}
	tests := []struct {
		name string
		list []byte
		want bool
	}{
		{"owner alone", acl(owner, [3]uint32{aclGroupObject, 0, nobody}, other), true},
		{"named user, full mask", acl(owner, [3]uint32{aclUser, 4, 7}, [3]uint32{aclMask, 7, nobody}, other), false},
		{"named user, mask written first", acl(owner, [3]uint32{aclMask, 7, nobody}, [3]uint32{aclUser, 2, 7}, other), false},
		{"named user, empty mask", acl(owner, [3]uint32{aclUser, 4, 7}, [3]uint32{aclMask, 0, nobody}, other), true},
		{"the owner by name", acl(owner, [3]uint32{aclUser, 4, me}, [3]uint32{aclMask, 7, nobody}, other), true},
		{"named group", acl(owner, [3]uint32{aclGroup, 4, 7}, [3]uint32{aclMask, 4, nobody}, other), false},
		{"own group", acl(owner, [3]uint32{aclGroupObject, 4, nobody}, other), false},
		{"others", acl(owner, [3]uint32{aclOther, 1, nobody}), false},
		{"unknown tag", acl(owner, [3]uint32{0x40, 0, nobody}), false},
		{"another version", []byte{3, 0, 0, 0}, false},
		{"cut", acl(owner)[:7], false},
		{"empty", nil, false},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, private(tt.list, me), tt.name)
	}
}

// A rank reads little, however many there are.
func TestReadIsSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gang-2.bundle")
	require.NoError(t, Write(path, encode(t, 16_384)))
	_, line, err := Read(path, 16_383)
	require.NoError(t, err)
	require.Equal(t, lines(16_384)[16_383], line)
	require.Less(t, testing.AllocsPerRun(20, func() { Read(path, 16_383) }), 100.0)
}

func FuzzRead(f *testing.F) {
	f.Add(encode(f, 1), 0)
	f.Add(encode(f, 2), 1)
	f.Add(encode(f, 2)[:5000], 1)
	f.Fuzz(func(t *testing.T, data []byte, rank int) {
		path := written(t, data)
		h, line, err := Read(path, rank)
		if err != nil {
			if line != nil || h.Size != 0 {
				t.Fatalf("%v with %v", err, h)
			}
			return
		}
		if len(line) == 0 || len(line) > LineSize || rank < 0 || rank >= h.Size || len(h.Addresses) == 0 {
			t.Fatalf("%v %d %q", h, rank, line)
		}
		if d, err := time.ParseDuration(h.DialTimeout); err != nil || d <= 0 {
			t.Fatal(h.DialTimeout)
		}
	})
}
