package gateway

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerGroups asks for the supplementary groups of the process at the other end (SO_PEERGROUPS, Linux 4.13); nil where
// the kernel doesn't tell.
func peerGroups(fd int) []uint32 {
	const most = 65536 // NGROUPS_MAX
	size := uint32(64 * 4)
	for size <= most*4 {
		buf := make([]byte, size)
		got := size
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&got)), 0)
		switch errno {
		case 0:
			groups := make([]uint32, got/4)
			for i := range groups {
				groups[i] = binary.NativeEndian.Uint32(buf[4*i:])
			}
			return groups
		case unix.ERANGE:
			size *= 4
		default:
			return nil
		}
	}
	return nil
}
