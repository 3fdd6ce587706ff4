package daemon

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
)

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

func TestControlOverTCP(t *testing.T) {
	o := options(t)
	_, err := Pin(o.StateDir)
	assert.ErrorIs(t, err, fs.ErrNotExist, "there is no key yet, and asking for its pin makes none")
	o.Remote, o.Control = freeAddress(t), ControlSocket(o.StateDir)
	var log bytes.Buffer
	o.Log = zerolog.New(zerolog.SyncWriter(&log))
	_, stop := start(t, o)
	c, err := tls.Dial("tcp", o.Remote, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{api.RemoteProtocol}})
	require.NoError(t, err)
	pin, err := Pin(o.StateDir)
	require.NoError(t, err)
	assert.Equal(t, pin, api.KeyPin(c.ConnectionState().PeerCertificates[0]))
	info, err := os.Stat(o.Control)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "users have TCP, its administrator has the socket")
	require.NoError(t, stop())
	c.Close()
	assert.Contains(t, log.String(), pin, "for control_pins")
	assert.Contains(t, log.String(), "control_pins of the site file doesn't name this pin")

	// The key outlives the daemon, and a site file that names it is fine.
	log.Reset()
	o.Site.Gateway.ControlPins = []string{pin}
	_, stop = start(t, o)
	require.NoError(t, stop())
	again, err := Pin(o.StateDir)
	require.NoError(t, err)
	assert.Equal(t, pin, again)
	assert.NotContains(t, log.String(), "doesn't name this pin")
}

// A host's own name may be a loopback address to itself: other login nodes must get through all the same.
func TestControlOfAHostsName(t *testing.T) {
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	ln, err := listenRemote(Options{Remote: net.JoinHostPort("head.invalid", port)})
	require.NoError(t, err)
	defer ln.Close()
	assert.True(t, ln.Addr().(*net.TCPAddr).IP.IsUnspecified())
	one, err := listenRemote(Options{Remote: freeAddress(t)})
	require.NoError(t, err)
	defer one.Close()
	assert.True(t, one.Addr().(*net.TCPAddr).IP.IsLoopback(), "an address is that address alone")
	none, err := listenRemote(Options{})
	require.NoError(t, err)
	assert.Nil(t, none)
	_, err = listenRemote(Options{Remote: one.Addr().String()})
	var e *net.OpError
	assert.True(t, errors.As(err, &e), "%v", err)
}
