package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway/wire"
)

// Causes of refusal that only the gateway knows; the others are credential's.
const (
	causeEpochRange = "epoch-range" // not an epoch of the allocation
	causeFenced     = "fenced"      // the workload is being ended
	causeOtherJob   = credential.CauseOtherJob
	causeDuplicate  = credential.CauseDuplicateRank
)

// Serve accepts agents until ctx ends. Whatever happens to one connection, accepting goes on.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if ctx.Err() == nil {
		s.reopen()
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	pause := 5 * time.Millisecond
	for {
		c, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting agents: %w", err)
		case err != nil:
			// EMFILE and the like pass; the peers wait in the kernel's backlog or come back.
			s.log.Error().Err(err).Dur("pause", pause).Msg("no connection can be accepted")
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = 5 * time.Millisecond
		if slot, d, ok := s.seat(c); ok {
			go s.serveConn(ctx, c, slot, d)
		}
	}
}

// seat gives a connection its slot, or turns it away. That is done before a goroutine is made for it: in a flood, most
// are turned away, and it must cost next to nothing.
func (s *Server) seat(raw net.Conn) (*slot, dialIn, bool) {
	d := dialIn{Source: sourceOf(raw)}
	taken, verdict := s.slots.take(raw, d.Source.Addr())
	switch verdict {
	case slotTaken:
		return taken, d, true
	case slotBusy:
		s.counters.refusedBusy.Add(1)
		d.Verdict = "busy"
	case slotSource:
		s.counters.refusedSource.Add(1)
		d.Verdict = "source"
	}
	raw.Close()
	s.audit.dialIn(d)
	return nil, d, false
}

// serveConn is the whole way of one rank that has a slot: deadline, TLS, hello, verify and burn, answer, register,
// serve. One deadline is over everything up to the answer, and the peer gets fixed text.
func (s *Server) serveConn(ctx context.Context, raw net.Conn, slot *slot, d dialIn) {
	defer raw.Close()
	if !s.own(raw) {
		slot.give()
		return
	}
	defer s.disown(raw)

	p, rest, l, adm, err := s.handshake(ctx, raw, slot, &d)
	evicted := slot.give()
	if err != nil {
		if evicted {
			err = errEvicted // whatever the closed connection made of it
		}
		s.refused(d, err)
		return
	}
	// The peer is a rank from here on.
	if !s.joins(raw) {
		return // the gateway was stopped meanwhile: nothing is counted, and the agent comes back
	}
	if !l.register(p, adm.Again || adm.Resume > 0) {
		s.counters.duplicateRank.Add(1)
		d.Verdict, d.Cause = "refused", causeDuplicate
		s.audit.dialIn(d)
		return
	}
	s.counters.accepted.Add(1)
	if adm.Resume > 0 {
		s.counters.resumed.Add(1)
	}
	d.Verdict = "accepted"
	s.audit.dialIn(d)
	l.serve(p, rest)
	l.gone(p)
}

// handshake goes from the first byte to the answer, under one deadline.
func (s *Server) handshake(ctx context.Context, raw net.Conn, slot *slot, d *dialIn) (*peer, []byte, *live, credential.Admission, error) {
	none := credential.Admission{}
	deadline := time.Now().Add(s.cfg.Handshake)
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, nil, nil, none, fmt.Errorf("setting the deadline: %w", err)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	conn, pinned, err := s.secure(ctx, &listening{Conn: raw, slot: slot})
	if err != nil {
		return nil, nil, nil, none, fmt.Errorf("shaking hands: %w", err)
	}
	hello, rest, err := wire.ReadHello(conn)
	malformed := errors.Is(err, wire.ErrHello) || errors.Is(err, wire.ErrHelloTooLong)
	if (err == nil || malformed) && !slot.heard() {
		return nil, nil, nil, none, errEvicted
	}
	if err != nil {
		if malformed {
			s.refuse(ctx, conn, slot)
			return nil, nil, nil, none, &credential.Refusal{Cause: credential.CauseMalformed}
		}
		return nil, nil, nil, none, fmt.Errorf("reading hello: %w", err)
	}
	var attempt credential.Attempt
	if hello.Agent != nil {
		if !pinned && s.cfg.TLSMode != "off" {
			hello.Agent = nil // frames are spoken over pinned TLS alone
		} else {
			secret, err := hello.Agent.AttemptSecret()
			if err != nil { // ReadHello has looked at it
				return nil, nil, nil, none, fmt.Errorf("reading hello: %w", err)
			}
			sum := sha256.Sum256(secret[:])
			attempt = &sum
			d.Job, d.Host = hello.Agent.Job, hello.Agent.Host
		}
	}
	var l *live
	adm, err := s.gate.Admit(ctx, hello.Line, attempt, func(c credential.Claim) (credential.Scope, error) {
		if s.isStopped() {
			return credential.Scope{}, errStopping
		}
		if l = s.byAllocation(c.Allocation); l == nil {
			return credential.Scope{}, &credential.Refusal{Cause: credential.CauseUnknownAllocation}
		}
		if err := s.attest(ctx, conn, hello, c, l, d); err != nil {
			return credential.Scope{}, err
		}
		return l.judge(c, hello.Agent)
	})
	d.Allocation, d.Epoch, d.Rank = adm.Allocation, adm.Epoch, adm.Rank
	if err != nil {
		if refusal := (*credential.Refusal)(nil); errors.As(err, &refusal) {
			s.refuse(ctx, conn, slot)
		}
		return nil, nil, nil, none, err
	}
	d.Generation = "kernel:" + uuid.NewString()
	var resume []byte
	if hello.Agent != nil {
		next := adm.Claim
		next.Nonce = credential.ResumeNonce(adm.Next)
		resume = s.gate.Secret.Issue(next)
	}
	if _, err := conn.Write(wire.Accepted(d.Generation, resume)); err != nil {
		return nil, nil, nil, none, fmt.Errorf("answering: %w", err)
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, nil, nil, none, fmt.Errorf("clearing the deadline: %w", err)
	}
	return &peer{conn: conn, rank: adm.Rank, epoch: adm.Epoch, claim: adm.Claim, agent: hello.Agent}, rest, l, adm, nil
}

// tlsRecord is the first byte of a TLS handshake.
const tlsRecord = 0x16

// secure brings up TLS. With "optional", the first byte tells.
func (s *Server) secure(ctx context.Context, raw net.Conn) (conn net.Conn, pinned bool, err error) {
	switch s.cfg.TLSMode {
	case "off":
		return raw, false, nil
	case "optional":
		var first [1]byte
		if _, err := io.ReadFull(raw, first[:]); err != nil {
			return nil, false, err
		}
		raw = &peeked{Conn: raw, first: first[:]}
		if first[0] != tlsRecord {
			return raw, false, nil
		}
	}
	t := tls.Server(raw, s.cfg.TLS)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, false, err
	}
	return t, true, nil
}

// peeked gives back the byte that was looked at.
type peeked struct {
	net.Conn
	first []byte
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// refuse answers a refused credential. Every one costs its source a growing delay, which takes nobody's place: the peer
// is parked meanwhile. It is the same for every cause and ends well before the handshake's deadline; whether the answer
// arrives is the peer's affair.
func (s *Server) refuse(ctx context.Context, c net.Conn, slot *slot) {
	now := time.Now()
	if wait := s.delays.next(slot.src.addr, now); wait > 0 {
		if deadline, ok := ctx.Deadline(); ok {
			wait = min(wait, deadline.Sub(now)/2)
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-slot.park():
		case <-ctx.Done():
		}
	}
	_, _ = c.Write([]byte(wire.Refused))
}

// refused counts and records a dial-in that came to nothing.
func (s *Server) refused(d dialIn, err error) {
	refusal := (*credential.Refusal)(nil)
	switch {
	case errors.As(err, &refusal):
		d.Verdict, d.Cause = "refused", refusal.Cause
		s.counters.reject(refusal.Cause)
	case errors.Is(err, errEvicted):
		d.Verdict = "evicted"
		s.counters.evicted.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		d.Verdict = "timeout"
		s.counters.timedOut.Add(1)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		d.Verdict = "closed"
	default:
		d.Verdict, d.Cause = "unanswered", clean(err.Error())
	}
	s.audit.dialIn(d)
}

func sourceOf(c net.Conn) netip.AddrPort {
	t, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	a := t.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
