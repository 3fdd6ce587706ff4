// Package agent is the rank's side: it reads its own credential, dials the gateway, runs the command when the whole
// gang is released, forwards its output, and reports its end.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/credential/bundle"
	"github.com/openai4s/hpc/gateway/wire"
)

// exitBootstrap is the agent's own exit code where the rank never came to run: what the upstream worker uses too.
const exitBootstrap = 70

// heartbeat is how often a word is sent.
const heartbeat = 15 * time.Second

// Main runs one rank and returns the process's exit code. guarded: this program, called with the word guard, is
// GuardCommand.
func Main(args []string, version string, guarded bool, stdout, stderr io.Writer) int {
	o, err := Parse(args, os.Getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "openai4s-agent: %v\n", err)
		return exitBootstrap
	}
	o.Version, o.Guarded, o.Stdout, o.Stderr = version, guarded, stdout, stderr
	return Run(context.Background(), o)
}

// Run takes a rank from its bundle to its end.
func Run(ctx context.Context, o Options) int {
	// Orphans come to us, so that nothing of the command is left when we go.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return failed(o, fmt.Errorf("becoming a child subreaper: %w", err))
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGWINCH, syscall.SIGCHLD, syscall.SIGHUP)
	defer signal.Stop(signals)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &rank{Options: o, signals: signals, frames: make(chan arrival), dialled: make(chan dialResult, 1), ctx: ctx}
	return a.run()
}

func failed(o Options, err error) int {
	fmt.Fprintf(o.Stderr, "openai4s-agent: rank %d: %v\n", o.Rank, err)
	return exitBootstrap
}

// arrival is a frame, or the end of its link.
type arrival struct {
	link  *link
	frame wire.Frame
	err   error
}

type dialResult struct {
	admitted
	err error
}

// rank is the state of one rank. Everything in it belongs to the goroutine of run.
type rank struct {
	Options
	ctx     context.Context // ends with run
	signals chan os.Signal
	frames  chan arrival
	dialled chan dialResult
	results chan result // of the command; nil until it was started

	head       bundle.Header
	credential []byte // that is presented next
	attempt    string
	freePort   int
	noMunge    sync.Once // that MUNGE doesn't answer is said once

	link     *link
	current  atomic.Pointer[link] // the same, for the output's goroutines
	dialling bool
	stopDial context.CancelFunc
	joined   bool // admitted at least once
	outcast  bool // the gateway wants no more of it
	short    int  // how many links in a row were cut soon after they came up

	startID string
	command *command
	exit    *wire.ExitReport // how the command ended
	held    *result          // its end, while the scheduler's TERM may still come to say why
	acked   bool             // the gateway has the report
	started *wire.StatusReport
	order   wire.StartOrder
	done    *wire.StopOrder // the last order
	staying bool            // only the scheduler's TERM is awaited
	over    bool            // the process is to leave
	code    int             // with this

	warn    <-chan time.Time // the walltime is near
	kill    <-chan time.Time // grace is over
	echo    <-chan time.Time // no TERM came after the command that died of one
	leave   <-chan time.Time // nobody acknowledged
	dialEnd time.Time
}

func (r *rank) run() int {
	var err error
	bundleRead, stop := context.WithCancel(r.ctx)
	termed := make(chan bool, 1) // while the bundle was waited for
	go func() {
		for {
			select {
			case s := <-r.signals:
				if s == syscall.SIGTERM || s == syscall.SIGINT {
					stop()
					termed <- true
					return
				}
			case <-bundleRead.Done():
				termed <- false
				return
			}
		}
	}()
	r.head, r.credential, err = readBundle(bundleRead, r.Options)
	stop()
	ended := <-termed
	if err != nil {
		return failed(r.Options, err)
	}
	if r.Rank >= r.head.Size {
		return failed(r.Options, fmt.Errorf("%w: the bundle is for %d ranks; was the launcher told to start more?", ErrUsage, r.head.Size))
	}
	if err := r.prepare(); err != nil {
		return failed(r.Options, err)
	}
	r.startDial()
	if ended {
		r.signalled(syscall.SIGTERM)
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for !r.over {
		select {
		case s := <-r.signals:
			r.signalled(s)
		case d := <-r.dialled:
			r.dialledIn(d)
		case f := <-r.frames:
			r.arrived(f)
		case e := <-r.results:
			r.ended(e)
		case <-r.echo:
			r.release()
		case <-beat.C:
			if r.link != nil {
				r.link.send(wire.Frame{Type: wire.Heartbeat})
			}
		case <-r.warn:
			r.warn = nil
			r.stop(wire.CauseWalltime)
		case <-r.kill:
			r.kill = nil
			if r.command != nil {
				r.command.killAll()
			}
		case <-r.leave:
			r.leave = nil
			r.leaveAlone()
		}
	}
	if r.link != nil {
		r.link.flush(2 * time.Second)
		r.link.close()
	}
	return r.code
}

func (r *rank) prepare() error {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	r.attempt = hex.EncodeToString(secret[:])
	if r.LocalRank < 0 {
		r.LocalRank = r.Rank % r.head.RanksPerNode
	}
	if r.NodeRank < 0 {
		r.NodeRank = r.Rank / r.head.RanksPerNode
	}
	if r.Rank == 0 {
		r.freePort = findFreePort()
	}
	wait, err := time.ParseDuration(r.head.DialTimeout)
	if err != nil {
		return fmt.Errorf("reading the bundle: dial_timeout: %w", err)
	}
	r.dialEnd = time.Now().Add(wait)
	return r.canAttest()
}

// findFreePort finds a TCP port that is free on this node; 0 where none can be had.
func findFreePort() int {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// startDial brings the rank to the gateway in the background. The first way in is bounded by dial_timeout; a cut
// connection is mended for as long as the command lives, and then until the rank leaves.
func (r *rank) startDial() {
	if r.dialling {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	if !r.joined {
		ctx, cancel = context.WithDeadlineCause(r.ctx, r.dialEnd, fmt.Errorf("gave up after %s", r.head.DialTimeout))
	}
	r.dialling, r.stopDial = true, cancel
	line, attest := r.credential, r.attests()
	d := &dialer{head: r.head, wait: r.redialWait(), hello: func(ctx context.Context, conn net.Conn) ([]byte, error) {
		return r.hello(ctx, line, attest, conn)
	}}
	go func() {
		a, err := d.dial(ctx)
		r.dialled <- dialResult{a, err}
	}()
}

// shortLink is less than a link lives whose gateway wants it.
const shortLink = 10 * time.Second

// redialWait is how long to wait before the next dial: a gateway that admits a rank and cuts it off again must not be
// dialled as fast as it can answer.
func (r *rank) redialWait() time.Duration {
	if r.short < 2 {
		return 0
	}
	return min(firstPause<<min(r.short, 16), longestPause)
}

func (r *rank) hello(ctx context.Context, credential []byte, attest bool, conn net.Conn) ([]byte, error) {
	a := wire.Agent{
		Protocol: wire.Protocol, Version: r.Version, Attempt: r.attempt, Job: r.Job, Host: r.Host,
		LocalRank: r.LocalRank, NodeRank: r.NodeRank, FreePort: r.freePort,
	}
	if t, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		a.Address = t.IP.String()
	}
	if attest {
		var err error
		if a.Attest, err = r.attestation(ctx, credential, conn); err != nil {
			return nil, err
		}
	}
	return wire.AppendHello(credential, a)
}

func (r *rank) dialledIn(d dialResult) {
	r.dialling = false
	r.stopDial()
	if d.err != nil {
		if r.joined && !errors.Is(d.err, errRefused) {
			return // the rank is leaving
		}
		r.barred(d.err)
		return
	}
	r.joined = true
	if d.answer.Resume != "" {
		r.credential = []byte(d.answer.Resume)
	}
	l := &link{conn: d.conn, since: time.Now()}
	r.link = l
	r.current.Store(l)
	go r.read(l)
	l.send(wire.Frame{Type: wire.Heartbeat}) // the answer has come: the credential is spent
	if r.started != nil {
		r.report(wire.Status, r.started)
	}
	if r.exit != nil && !r.acked {
		r.report(wire.Exit, r.exit)
	}
}

// barred: the gateway refused, or could not be reached within dial_timeout. A refusal after the rank had joined means
// that its epoch is over.
func (r *rank) barred(err error) {
	fmt.Fprintf(r.Stderr, "openai4s-agent: rank %d: %v\n", r.Rank, err)
	r.outcast = true
	if r.command != nil && r.exit == nil {
		r.stop(wire.CauseOrder)
		return
	}
	r.leaveAlone()
}

func (r *rank) read(l *link) {
	for {
		f, err := wire.ReadFrame(l.conn)
		select {
		case r.frames <- arrival{l, f, err}:
		case <-r.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (r *rank) report(t wire.Type, payload any) {
	if r.link == nil {
		return
	}
	f, err := wire.JSON(t, payload)
	if err != nil { // reports are small and always marshal
		return
	}
	r.link.send(f)
}
