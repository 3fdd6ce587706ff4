// Package daemon wires one gateway from one site; the daemon and the embedded gateway are this.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway"
	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/site"
)

// Options of one run.
type Options struct {
	Site     site.Site
	System   scheduler.System
	StateDir string // locked; made 0700
	Control  string // path of the control socket
	Remote   string // host:port of control over TCP; "": none
	Listen   string // agents' listener; "" : none
	Embedded bool   // one user's: stays while any workload is live
	Version  string
	Log      zerolog.Logger
}

// ErrLocked is returned by Run where another daemon holds the state folder.
var ErrLocked = errors.New("another daemon holds the state folder")

// Running is what ready is told.
type Running struct {
	Control string
	Address []string    // advertised to agents
	Idle    func() bool // no workload is live
}

// Run serves until ctx ends; ready is called once everything listens. It returns the first failure, or nil.
func Run(ctx context.Context, o Options, ready func(Running)) (err error) {
	state, err := openState(o.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.close()) }()

	agents, addresses, err := listenAgents(o)
	if err != nil {
		return err
	}
	if agents != nil {
		defer agents.Close()
	}
	control, err := listenControl(o.Control, o.Embedded || o.Remote != "")
	if err != nil {
		return err
	}
	defer control.Close()
	remote, err := listenRemote(o)
	if err != nil {
		return err
	}
	if remote != nil {
		defer remote.Close()
	}

	metrics, err := listenMetrics(o)
	if err != nil {
		return err
	}
	if metrics != nil {
		defer metrics.Close()
	}

	// The fence outlives everything that burns, so that no admission waits for an answer that never comes.
	fencing, endFence := context.WithCancel(context.WithoutCancel(ctx))
	fence, err := credential.OpenFence(state.db)
	if err != nil {
		endFence()
		return err
	}
	fenceOver := make(chan error, 1)
	go func() { fenceOver <- fence.Run(fencing) }()
	defer func() { endFence(); err = errors.Join(err, <-fenceOver) }()

	system := &oneAtATime{System: o.System}
	var loop *scheduler.Reconciler
	server, err := state.gateway(fencing, o, fence, addresses, system, func() { loop.Poke() })
	if err != nil {
		return err
	}
	loop = scheduler.NewReconciler(system, server, interval(o.Site.Scheduler))

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Run(ctx) })
	g.Go(func() error { return loop.Run(ctx) })
	g.Go(func() error { return server.ServeControl(ctx, control) })
	if remote != nil {
		callers := server.Remotes(remote, o.Site.Commands["unmunge"])
		defer callers.Close()
		g.Go(func() error { return server.ServeControl(ctx, callers) })
		state.tellPin(o, remote)
	}
	if agents != nil {
		g.Go(func() error { return server.Serve(ctx, agents) })
	}
	if metrics != nil {
		g.Go(func() error { return server.ServeMetrics(ctx, metrics) })
	}
	g.Go(func() error {
		<-ctx.Done()
		server.Stop()
		return nil
	})
	o.Log.Info().Str("control", o.Control).Strs("agents", addresses).Int("live", server.LiveCount()).Msg("serving")
	ready(Running{Control: o.Control, Address: addresses, Idle: func() bool { return server.LiveCount() == 0 }})
	return g.Wait()
}

// interval between two looks at the scheduler. The local one costs a few files; a real one costs its controller.
func interval(scheduler string) time.Duration {
	if scheduler == "local" {
		return 200 * time.Millisecond
	}
	return 4 * time.Second
}

// state is the locked state folder and what lies in it.
type state struct {
	dir      string
	lock     *os.File
	db       *bbolt.DB
	secret   credential.Secret
	identity gateway.Identity
	audit    *gateway.Audit
}

func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("closing the state folder to others: %w", err)
	}
	s := &state{dir: dir}
	err := s.open()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *state) open() (err error) {
	if s.lock, err = lock(filepath.Join(s.dir, "lock")); err != nil {
		return err
	}
	if s.secret, err = credential.LoadSecret(s.dir); err != nil {
		return err
	}
	if s.identity, err = gateway.LoadIdentity(s.dir); err != nil {
		return err
	}
	path := filepath.Join(s.dir, storeFile)
	if s.db, err = bbolt.Open(path, 0o600, credential.StoreOptions()); err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	s.db.MaxBatchDelay = time.Millisecond
	s.audit, err = gateway.OpenAudit(s.dir, time.Now)
	return err
}

func (s *state) close() error {
	var errs []error
	if s.audit != nil {
		errs = append(errs, s.audit.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// gateway builds the gateway on the state.
func (s *state) gateway(lifetime context.Context, o Options, fence *credential.Fence, addresses []string, system scheduler.System, poke func()) (*gateway.Server, error) {
	store, err := gateway.NewStore(s.db)
	if err != nil {
		return nil, err
	}
	g := o.Site.Gateway
	widest, _ := o.Site.Widest()
	c := gateway.Config{
		Version: o.Version, Handshake: g.HandshakeTimeout, Pending: o.Site.HandshakeBound(), PerSource: o.Site.PerSource(), Widest: widest,
		TLS: s.identity.Config, TLSMode: g.TLS, Pins: []string{s.identity.Pin}, Addresses: addresses,
		DialTimeout: g.DialTimeout, OrphanTTL: g.OrphanTTL, RankLostAfter: g.RankLostAfter, CredentialTTL: g.CredentialTTL,
		AbsenceDeadline: g.AbsenceDeadline, HistoryTTL: g.HistoryTTL, Poll: interval(o.Site.Scheduler), MaxLive: g.MaxLive, MaxCredentials: g.MaxCredentials, UID: os.Getuid(), Cancel: g.Cancel,
		Embedded: o.Embedded, Admins: g.Admins, SiteSHA256: o.Site.SHA256, System: o.Site.Scheduler, Now: time.Now,
	}
	if g.Attests() {
		c.Attest, c.Munge, c.Unmunge = gateway.AttestMunge, o.Site.Commands["munge"], o.Site.Commands["unmunge"]
	}
	return gateway.New(c, gateway.Parts{
		Gate: &credential.Gatekeeper{Secret: s.secret, Fence: fence, Now: time.Now}, Store: store, KeyDir: filepath.Join(s.dir, "keys"),
		Audit: s.audit, Log: o.Log, Jobs: system, Poke: poke, Lifetime: lifetime,
	})
}

// listenMetrics opens the listener of /metrics and /healthz, for a site daemon whose site names one.
func listenMetrics(o Options) (net.Listener, error) {
	if o.Site.Gateway.Metrics == "" || o.Embedded {
		return nil, nil
	}
	ln, err := net.Listen("tcp", o.Site.Gateway.Metrics)
	if err != nil {
		return nil, fmt.Errorf("opening the metrics listener: %w", err)
	}
	return ln, nil
}

// listenControl opens the control socket. Everybody may connect to a site daemon's: the kernel tells who they are.
func listenControl(path string, private bool) (net.Listener, error) {
	dir, mode := os.FileMode(0o755), os.FileMode(0o666)
	if private {
		dir, mode = 0o700, 0o600
	}
	if err := os.MkdirAll(filepath.Dir(path), dir); err != nil {
		return nil, fmt.Errorf("making the control socket's folder: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		ln.Close()
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	return ln, nil
}

// removeStale removes a socket that nobody serves. The state folder's lock says that its daemon is gone, but another
// daemon with another state folder may serve the same path.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil // nothing there, or Listen will say what is wrong
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("opening the control socket: %s is there and no socket; move it away", path)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fmt.Errorf("opening the control socket: another daemon serves %s", path)
	}
	return os.Remove(path)
}
