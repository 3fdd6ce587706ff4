package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/rs/zerolog"

	"github.com/openai4s/hpc/internal/daemon"
	"github.com/openai4s/hpc/scheduler/systems"
	"github.com/openai4s/hpc/site"
)

const (
	// maxGatewayLog is the size beyond which the embedded gateway's log begins anew.
	maxGatewayLog = 8 << 20
	// idlePoll is how often a gateway that outlives its own workload looks whether others are done.
	idlePoll = 200 * time.Millisecond
)

// ownGateway is the gateway that this process serves.
type ownGateway struct {
	running daemon.Running
	stop    func() error // ends it and returns what it ended with
}

// stateDir is where the embedded gateway of this site, user and host keeps what must survive it.
func stateDir(s site.Site) (string, error) {
	dir, err := daemon.UserState(s)
	if errors.Is(err, daemon.ErrSocketPath) {
		return "", &failure{exit: exitBadFile, message: err.Error(), hint: "set XDG_STATE_HOME to a shorter path"}
	}
	return dir, err
}

// serve runs the gateway inside this process until stop. daemon.ErrLocked: another process serves this state.
func (a *app) serve(ctx context.Context, s site.Site, dir, socket string) (*ownGateway, error) {
	system, err := systems.For(s)
	if err != nil {
		return nil, badFile(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state folder: %w", err)
	}
	log, err := openGatewayLog(filepath.Join(dir, "gateway.log"))
	if err != nil {
		return nil, err
	}
	options := daemon.Options{
		Site:     s,
		System:   system,
		StateDir: dir,
		Control:  socket,
		Embedded: true,
		Version:  a.version,
		Log:      zerolog.New(log).With().Timestamp().Int("pid", os.Getpid()).Logger(),
	}
	keep := filepath.Join(dir, "port")
	port := keptPort(keep)
	for {
		options.Listen = net.JoinHostPort(listenHost(s), strconv.Itoa(port))
		own, err := start(ctx, options)
		if port != 0 && errors.Is(err, syscall.EADDRINUSE) {
			a.note("openai4s: port %d of the last run is taken; ranks that still run can't come back to a new one", port)
			port = 0
			continue
		}
		if err != nil {
			log.Close()
			return nil, err
		}
		stop := own.stop
		own.stop = sync.OnceValue(func() error { return errors.Join(stop(), log.Close()) })
		if err := keepPort(keep, own.running.Address); err != nil {
			return nil, errors.Join(err, own.stop())
		}
		return own, nil
	}
}

// start runs the daemon in a goroutine and returns once it listens.
func start(ctx context.Context, o daemon.Options) (*ownGateway, error) {
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // Ctrl-C ends commands, not the gateway below them
	ready := make(chan daemon.Running, 1)
	over := make(chan error, 1)
	go func() { over <- daemon.Run(serving, o, func(r daemon.Running) { ready <- r }) }()
	stop := func() error {
		cancel()
		if err := <-over; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("ending the embedded gateway: %w", err)
		}
		return nil
	}
	select {
	case r := <-ready:
		return &ownGateway{running: r, stop: stop}, nil
	case err := <-over:
		cancel()
		if err == nil {
			err = errors.New("it ended at once")
		}
		return nil, fmt.Errorf("starting the embedded gateway: %w", err)
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), stop())
	}
}

// listenHost is where ranks dial: this machine alone for the local scheduler, else every interface.
func listenHost(s site.Site) string {
	if s.Scheduler == "local" {
		return "127.0.0.1"
	}
	return ""
}

// keptPort is the port of the last run, so that ranks which outlived it find the gateway again; 0 where there is none.
func keptPort(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || port < 1 || port > 65535 {
		return 0
	}
	return port
}

func keepPort(path string, addresses []string) error {
	for _, address := range addresses {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			continue
		}
		if err := renameio.WriteFile(path, []byte(port+"\n"), 0o600); err != nil {
			return fmt.Errorf("keeping the port: %w", err)
		}
		return nil
	}
	return nil
}

// openGatewayLog opens the embedded gateway's log; one that grew too large begins anew.
func openGatewayLog(path string) (*os.File, error) {
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if info, err := os.Stat(path); err == nil && info.Size() > maxGatewayLog {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the gateway's log: %w", err)
	}
	return f, nil
}

// stayWhileNeeded keeps a gateway of this process up until no workload needs it; Ctrl-C leaves.
func (a *app) stayWhileNeeded(c *connection) error {
	own := c.serving()
	if own == nil || own.running.Idle == nil || own.running.Idle() {
		return nil
	}
	a.note("other workloads of yours live on this gateway: staying until they are over (Ctrl-C leaves; they go on and the next openai4s command serves them)")
	tick := time.NewTicker(idlePoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if own.running.Idle() {
				return nil
			}
		case <-a.interrupts:
			return errInterrupted
		}
	}
}
