package daemon

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/gateway"
)

// listenAgents opens the agents' listener with a backlog and a descriptor limit that fit the bound on handshakes, and
// says under which addresses agents find it.
func listenAgents(o Options) (net.Listener, []string, error) {
	if o.Listen == "" {
		return nil, nil, nil
	}
	raiseDescriptors(o)
	ln, err := gateway.Listen(o.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the agents' listener: %w", err)
	}
	if err := raiseBacklog(ln, o.Site.HandshakeBound()); err != nil {
		o.Log.Warn().Err(err).Msg("the listen backlog could not be raised")
	}
	addresses := advertised(o, ln.Addr().(*net.TCPAddr))
	if len(addresses) == 0 {
		ln.Close()
		return nil, nil, fmt.Errorf("no address is known under which agents find %s; set advertise under [gateway] in site.toml", ln.Addr())
	}
	return ln, addresses, nil
}

// raiseBacklog asks for a queue of connections that holds the widest gang. The kernel caps it at somaxconn; agents
// that find it full are held back by TCP and come again.
func raiseBacklog(ln net.Listener, bound int) error {
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), max(bound, 128)) }); err != nil {
		return err
	}
	return listenErr
}

// descriptorsBeside is what the process needs beside one descriptor per handshake and rank.
const descriptorsBeside = 256

// raiseDescriptors lifts the soft limit to the hard one and tells where that is too little.
func raiseDescriptors(o Options) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		o.Log.Warn().Err(err).Msg("the descriptor limit can't be read")
		return
	}
	need := uint64(o.Site.HandshakeBound() + descriptorsBeside)
	if lim.Cur < lim.Max {
		lim.Cur = lim.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			o.Log.Warn().Err(err).Msg("the descriptor limit can't be raised")
		}
	}
	if lim.Cur < need {
		o.Log.Warn().Uint64("limit", lim.Cur).Uint64("needed", need).Msg("fewer descriptors than the widest allocation needs; raise LimitNOFILE of the service")
	}
}

// advertised is the list of addresses that agents try, in order: the site's own words, else those of this host.
func advertised(o Options, at *net.TCPAddr) []string {
	if a := o.Site.Gateway.Advertise; len(a) > 0 {
		if o.Embedded && os.Getenv("OPENAI4S_WORKER_ADVERTISE") == "" {
			return withPort(a, at.Port) // the site daemon's hosts, this process's port
		}
		return a
	}
	port := strconv.Itoa(at.Port)
	if !at.IP.IsUnspecified() {
		return []string{net.JoinHostPort(at.IP.String(), port)}
	}
	var addresses []string
	if host, err := os.Hostname(); err == nil {
		if found, err := net.LookupHost(host); err == nil && slices.ContainsFunc(found, notLoopback) {
			addresses = append(addresses, net.JoinHostPort(host, port))
		}
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		o.Log.Warn().Err(err).Msg("the addresses of this host can't be listed")
	}
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			addresses = append(addresses, net.JoinHostPort(n.IP.String(), port))
		}
	}
	if len(addresses) == 0 { // a machine that is a whole cluster by itself
		addresses = append(addresses, net.JoinHostPort("127.0.0.1", port))
	}
	return addresses
}

func notLoopback(s string) bool {
	ip := net.ParseIP(s)
	return ip != nil && !ip.IsLoopback()
}

func withPort(addresses []string, port int) []string {
	var out []string
	for _, a := range addresses {
		if host, _, err := net.SplitHostPort(a); err == nil {
			out = append(out, net.JoinHostPort(host, strconv.Itoa(port)))
		}
	}
	return out
}
