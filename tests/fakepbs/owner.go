package fakepbs

import (
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity of a job's owner on the hosts; nil where the job runs as whoever runs the server: a server that isn't
// root's has no choice, and a test may invent a user.
func (j *job) identity() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup(j.owner)
	if err != nil {
		return nil
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err1 != nil || err2 != nil || uid == 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{uint32(gid)}}
}

// asOwner does file work with the owner's rights.
func (j *job) asOwner(work func() error) error {
	id := j.identity()
	if id == nil {
		return work()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, set := range []struct {
		call func(int) (int, error)
		id   uint32
	}{{unix.SetfsgidRetGid, id.Gid}, {unix.SetfsuidRetUid, id.Uid}} {
		_, _ = set.call(int(set.id)) // it returns the old one, and no error ever
		defer func() { _, _ = set.call(0) }()
	}
	return work()
}

// give hands a file of the server's to a job's owner.
func (j *job) give(path string) error {
	id := j.identity()
	if id == nil {
		return nil
	}
	return os.Chown(path, int(id.Uid), int(id.Gid))
}
