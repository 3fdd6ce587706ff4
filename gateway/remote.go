package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/internal/munge"
)

const (
	// remotePending bounds callers over TCP that haven't said yet who they are, remotePerSource those of one address.
	remotePending   = 256
	remotePerSource = 32
	// remoteIdle is how long a connection without a request is kept; the client drops it earlier.
	remoteIdle = 5 * time.Minute
)

// remoteConn is a control connection over TCP whose caller is known.
type remoteConn struct {
	net.Conn
	who caller
}

// remotes hands out the connections of a TCP listener once their callers are known. No connection waits for another
// one's handshake.
type remotes struct {
	srv   *Server
	ln    net.Listener
	tls   *tls.Config
	slots *slots
	munge *unmunger

	known chan net.Conn
	over  chan struct{} // closed by Close
	close func() error
	tasks sync.WaitGroup

	mu      sync.Mutex
	pending map[net.Conn]bool
	closed  bool
}

// Remotes makes of a TCP listener one for ServeControl: TLS under the agents' key, then the caller's MUNGE credential,
// bound to the connection. A caller that isn't known gets no further. unmunge is the command's path, "" for that of
// the PATH.
func (s *Server) Remotes(ln net.Listener, unmunge string) net.Listener {
	config := s.cfg.TLS.Clone()
	config.NextProtos = []string{api.RemoteProtocol}
	r := &remotes{srv: s, ln: ln, tls: config, slots: newSlots(remotePending, remotePerSource), munge: newUnmunger(unmunge),
		known: make(chan net.Conn), over: make(chan struct{}), pending: map[net.Conn]bool{}}
	ctx, cancel := context.WithCancel(s.background)
	r.close = sync.OnceValue(func() error {
		close(r.over)
		cancel()
		err := ln.Close()
		r.mu.Lock()
		r.closed = true
		for c := range r.pending {
			c.Close()
		}
		r.mu.Unlock()
		r.tasks.Wait()
		return err
	})
	r.tasks.Add(1)
	go r.accept(ctx)
	return r
}

func (r *remotes) Addr() net.Addr { return r.ln.Addr() }

// Close ends the listener and every handshake under way.
func (r *remotes) Close() error { return r.close() }

// Accept returns the next connection whose caller is known.
func (r *remotes) Accept() (net.Conn, error) {
	select {
	case c := <-r.known:
		return c, nil
	case <-r.over:
		return nil, net.ErrClosed
	}
}

func (r *remotes) accept(ctx context.Context) {
	defer r.tasks.Done()
	pause := 5 * time.Millisecond
	for {
		c, err := r.ln.Accept()
		if err == nil {
			pause = 5 * time.Millisecond
			r.tasks.Add(1)
			go r.admit(ctx, c)
			continue
		}
		select {
		case <-r.over:
			return
		default:
		}
		r.srv.log.Error().Err(err).Dur("pause", pause).Msg("no control connection can be accepted")
		select {
		case <-r.over:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}

// own takes a connection as one that is shaking hands; false once the listener is closed.
func (r *remotes) own(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.pending[c] = true
	}
	return !r.closed
}

func (r *remotes) disown(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, c)
}

// admit is the whole way of one caller: slot, deadline, TLS, credential, answer.
func (r *remotes) admit(ctx context.Context, raw net.Conn) {
	defer r.tasks.Done()
	source := sourceOf(raw)
	if !r.own(raw) {
		raw.Close()
		return
	}
	conn, err := r.handshake(ctx, raw, source)
	r.disown(raw)
	if err != nil {
		raw.Close()
		r.refused(source, err)
		return
	}
	r.srv.audit.remote(source, "accepted", "", &conn.who)
	select {
	case r.known <- conn:
	case <-r.over:
		raw.Close()
	}
}

var (
	errRemoteBusy   = errors.New("too many callers at a time")
	errRemoteSource = errors.New("too many callers of one address at a time")
)

func (r *remotes) handshake(ctx context.Context, raw net.Conn, source netip.AddrPort) (known *remoteConn, err error) {
	slot, verdict := r.slots.take(raw, source.Addr())
	switch verdict {
	case slotBusy:
		return nil, errRemoteBusy
	case slotSource:
		return nil, errRemoteSource
	}
	defer func() {
		if slot.give() && err != nil {
			err = errEvicted // whatever the closed connection made of it
		}
	}()
	deadline := time.Now().Add(r.srv.cfg.Handshake)
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("setting the deadline: %w", err)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	conn := tls.Server(&listening{Conn: raw, slot: slot}, r.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("shaking hands: %w", err)
	}
	if conn.ConnectionState().NegotiatedProtocol != api.RemoteProtocol {
		return nil, &badMunge{cause: "another protocol"}
	}
	in := bufio.NewReaderSize(conn, munge.Max+1)
	line, err := in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("reading the credential: %w", err)
	}
	if err != nil || in.Buffered() > 0 { // too long, or not waiting for the answer
		err = &badMunge{cause: "malformed"}
		r.answer(conn, err)
		return nil, err
	}
	payload, err := api.RemotePayload(conn.ConnectionState())
	if err != nil {
		return nil, err
	}
	if !slot.heard() {
		return nil, errEvicted
	}
	// The caller becomes somebody here.
	who, err := r.munge.verify(ctx, line[:len(line)-1], payload)
	if err != nil {
		_ = raw.SetDeadline(time.Now().Add(time.Second)) // for the answer; the deadline may be over
		r.answer(conn, err)
		return nil, err
	}
	if len(r.srv.cfg.Admins) > 0 {
		who.Groups = groupsOf(who.UID)
	}
	if _, err := conn.Write([]byte("{\"ok\":true}\n")); err != nil {
		return nil, fmt.Errorf("answering: %w", err)
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("clearing the deadline: %w", err)
	}
	return &remoteConn{Conn: conn, who: who}, nil
}

// answer tells a caller why nothing comes of it; whether that arrives is the caller's affair.
func (r *remotes) answer(c net.Conn, err error) {
	e := api.Error{Code: "unavailable", Message: errMungeDown.Error(), Hint: "tell the site's administrators; nothing was done"}
	if bad := (*badMunge)(nil); errors.As(err, &bad) {
		e = api.Error{Code: "not_allowed", Message: bad.Error(), Hint: bad.hint}
	}
	_ = json.NewEncoder(c).Encode(map[string]api.Error{"error": e})
}

// refused records a caller that was not let in.
func (r *remotes) refused(source netip.AddrPort, err error) {
	verdict, cause := "unanswered", clean(err.Error())
	bad := (*badMunge)(nil)
	switch {
	case errors.As(err, &bad):
		verdict, cause = "refused", bad.cause
	case errors.Is(err, errRemoteBusy):
		verdict, cause = "busy", ""
	case errors.Is(err, errRemoteSource):
		verdict, cause = "source", ""
	case errors.Is(err, errEvicted):
		verdict, cause = "evicted", ""
	case errors.Is(err, errMungeDown):
		verdict = "unavailable"
		r.munge.sayDown(r.srv.log, err, "callers over TCP are refused: look at munged on this host")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		verdict, cause = "timeout", ""
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		verdict, cause = "closed", ""
	}
	r.srv.audit.remote(source, verdict, cause, nil)
}
