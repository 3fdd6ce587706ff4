package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/openai4s/hpc/gateway"
)

// Pin is the pin of the key in a state folder: what commands on other hosts must know of the gateway.
func Pin(dir string) (string, error) { return gateway.Pin(dir) }

// listenRemote opens the listener of control over TCP. A host's own name often means a loopback address to itself, so
// every address is listened on where the site names the host rather than an address.
func listenRemote(o Options) (net.Listener, error) {
	if o.Remote == "" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(o.Remote)
	if err != nil {
		return nil, fmt.Errorf("opening the control listener: %w", err)
	}
	if _, err := netip.ParseAddr(host); err != nil {
		host = ""
	}
	ln, err := gateway.Listen(net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("opening the control listener: %w", err)
	}
	return ln, nil
}

// tellPin says which key commands will find, and warns where the site file doesn't let them trust it.
func (s *state) tellPin(o Options, ln net.Listener) {
	e := o.Log.Info()
	if !slices.Contains(o.Site.Gateway.ControlPins, s.identity.Pin) {
		e = o.Log.Warn().Str("remedy", "control_pins of the site file doesn't name this pin: no command will speak to this daemon until it does")
	}
	e.Str("control", ln.Addr().String()).Str("pin", s.identity.Pin).Msg("control over TCP")
}
