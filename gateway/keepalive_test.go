package gateway

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// An accepted connection has what its listener has.
func TestConnectionsInheritTheKeepalive(t *testing.T) {
	ln, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer far.Close()
	near, err := ln.Accept()
	require.NoError(t, err)
	defer near.Close()
	raw, err := near.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	for _, o := range []struct{ level, option, want int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 20},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 6},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 180_000},
	} {
		var got int
		require.NoError(t, raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), o.level, o.option) }))
		require.NoError(t, err)
		assert.Equal(t, o.want, got, o.option)
	}
	_, err = Listen("no.such.host.invalid:0")
	assert.ErrorContains(t, err, "listening")
}
