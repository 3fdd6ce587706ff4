package bundle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const aclName = "system.posix_acl_access"

// The attribute is a version, then entries of tag, permissions and id, all little-endian.
const (
	aclVersion  = 2
	aclEntryLen = 8

	aclUserObject  = 0x01
	aclUser        = 0x02
	aclGroupObject = 0x04
	aclGroup       = 0x08
	aclMask        = 0x10
	aclOther       = 0x20
)

// maxACL is more than any file system keeps in an attribute.
const maxACL = 64 << 10

// checkACL refuses a list that lets anybody but the owner in.
func checkACL(f *os.File, path string, uid int) error {
	size, err := unix.Fgetxattr(int(f.Fd()), aclName, nil)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil // no list, or a file system that has none
	}
	if err != nil {
		return fmt.Errorf("reading the access control list of bundle %s: %w", path, err)
	}
	if size > maxACL {
		return fmt.Errorf("%w: %s has one of %d bytes; setfacl -b it", ErrACL, path, size)
	}
	list := make([]byte, size)
	n, err := unix.Fgetxattr(int(f.Fd()), aclName, list)
	if err != nil {
		return fmt.Errorf("reading the access control list of bundle %s: %w", path, err)
	}
	if !private(list[:n], uid) {
		return fmt.Errorf("%w: %s; setfacl -b and chmod 600 it, and submit again if others may have read it", ErrACL, path)
	}
	return nil
}

// private says whether the list gives permissions to nobody but the owner. One that can't be read is not.
func private(list []byte, uid int) bool {
	if len(list) < 4 || (len(list)-4)%aclEntryLen != 0 || binary.LittleEndian.Uint32(list) != aclVersion {
		return false
	}
	mask := uint16(0o7)
	for e := list[4:]; len(e) > 0; e = e[aclEntryLen:] {
		if binary.LittleEndian.Uint16(e) == aclMask {
			mask = binary.LittleEndian.Uint16(e[2:])
		}
	}
	for e := list[4:]; len(e) > 0; e = e[aclEntryLen:] {
		tag, perm, id := binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:]), binary.LittleEndian.Uint32(e[4:])
		switch tag {
		case aclUserObject, aclMask:
		case aclUser:
			if int(id) != uid && perm&mask != 0 {
				return false
			}
		case aclGroupObject, aclGroup:
			if perm&mask != 0 {
				return false
			}
		case aclOther:
			if perm != 0 {
				return false
			}
		default:
			return false
		}
	}
	return true
}
