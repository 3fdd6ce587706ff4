package gateway

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// keepAliveIdle, -Interval and -Probes have the kernel find out about dead peers: probes after a minute of silence.
	keepAliveIdle     = 60 * time.Second
	keepAliveInterval = 20 * time.Second
	keepAliveProbes   = 6
	// userTimeout is how long sent data may stay unacknowledged before the kernel gives the connection up: as long as
	// the keepalive needs.
	userTimeout = keepAliveIdle + keepAliveProbes*keepAliveInterval
)

// Listen opens the listener of agents, or of remote callers. Its connections inherit from it how the kernel finds out
// about dead peers: asked for each, that costs a gang of thousands five system calls a rank.
func Listen(address string) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAlive: -1, // Go's own, set anew for each connection
		Control: func(_, _ string, c syscall.RawConn) error {
			var optionErr error
			err := c.Control(func(fd uintptr) { optionErr = findDeadPeers(int(fd)) })
			if err == nil {
				err = optionErr
			}
			return err
		},
	}
	ln, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return ln, nil
}

func findDeadPeers(fd int) error {
	for _, o := range []struct{ level, option, value int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveIdle.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("setting socket option %d: %w", o.option, err)
		}
	}
	return nil
}
