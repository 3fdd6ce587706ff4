package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// caller is who speaks on a control connection, as the kernel says, or MUNGE on another host.
type caller struct {
	UID    int
	Groups []uint32 // supplementary groups of the process, where the kernel tells; of the user, over TCP
	GID    uint32
	Host   string // that made the MUNGE credential; "": this one

	crowded bool // of a user with too many connections
}

type callerKey struct{}

// callerOf asks the kernel who is at the other end of a Unix socket. Over TCP it was found out before.
func callerOf(c net.Conn) (caller, error) {
	if r, ok := c.(*remoteConn); ok {
		return r.who, nil
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return caller{}, fmt.Errorf("reading the caller's uid: not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return caller{}, fmt.Errorf("reading the caller's uid: %w", err)
	}
	var who caller
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			credErr = err
			return
		}
		who.UID, who.GID = int(cred.Uid), cred.Gid
		who.Groups = peerGroups(int(fd))
	})
	if err == nil {
		err = credErr
	}
	if err != nil {
		return caller{}, fmt.Errorf("reading the caller's uid: %w", err)
	}
	return who, nil
}

// name is the user's name, or the number where none is known. getent knows LDAP without cgo.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	if line, ok := getent("passwd", strconv.Itoa(uid)); ok {
		if name, _, ok := strings.Cut(line, ":"); ok && name != "" {
			return name
		}
	}
	return strconv.Itoa(uid)
}

// groupsOf are a user's supplementary groups, as this host knows them. MUNGE doesn't tell them.
func groupsOf(uid int) []uint32 {
	line, _ := getent("initgroups", userName(uid))
	var groups []uint32
	for i, field := range strings.Fields(line) {
		if n, err := strconv.ParseUint(field, 10, 32); err == nil && i > 0 { // the first is the user's name
			groups = append(groups, uint32(n))
		}
	}
	return groups
}

// isAdmin tells whether the caller is root, or in one of the admin groups.
func (s *Server) isAdmin(who caller) bool {
	if who.UID == 0 {
		return true
	}
	for _, g := range s.cfg.Admins {
		gid, members, ok := s.group(g)
		if ok && (gid == who.GID || slices.Contains(who.Groups, gid) || slices.Contains(members, userName(who.UID))) {
			return true
		}
	}
	return false
}

// group looks a Unix group up.
func (s *Server) group(name string) (gid uint32, members []string, ok bool) {
	line, ok := getent("group", name)
	if !ok {
		return 0, nil, false
	}
	fields := strings.Split(line, ":")
	if len(fields) < 4 {
		return 0, nil, false
	}
	n, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return 0, nil, false
	}
	return uint32(n), strings.Split(fields[3], ","), true
}

func getent(database, key string) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getent", database, key).Output()
	if err != nil {
		return "", false
	}
	line, err := bufio.NewReader(strings.NewReader(string(out))).ReadString('\n')
	return strings.TrimSpace(line), err == nil
}
