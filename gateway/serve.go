package gateway

import (
	"bytes"
	"io"

	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/gateway/wire"
)

// serve reads a registered rank's frames until its connection ends. rest came in the same read as the hello.
func (l *live) serve(p *peer, rest []byte) {
	if p.agent == nil {
		l.hold(p)
		return
	}
	var r io.Reader = p.conn
	if len(rest) > 0 {
		r = io.MultiReader(bytes.NewReader(rest), p.conn)
	}
	for {
		f, err := wire.ReadFrame(r)
		if err != nil {
			p.close()
			return
		}
		if !p.used {
			// A byte came after the answer: the credential is spent even for the same attempt.
			p.used = true
			l.srv.fence.Used(p.claim)
		}
		l.heard(p)
		if !l.frame(p, f) {
			p.close()
			return
		}
	}
}

// hold keeps a peer that announced nothing: it is counted, and its end is noticed. What it says unasked is dropped,
// since nobody drives it.
func (l *live) hold(p *peer) {
	var b [512]byte
	for {
		if _, err := p.conn.Read(b[:]); err != nil {
			p.close()
			return
		}
		if !p.used {
			p.used = true
			l.srv.fence.Used(p.claim)
		}
		l.heard(p)
	}
}

// frame acts on one frame. False ends the connection: the frame can't be read. Unknown types are skipped.
func (l *live) frame(p *peer, f wire.Frame) bool {
	switch f.Type {
	case wire.Stdout, wire.Stderr:
		l.logs.add(p.rank, f.Payload)
	case wire.Status:
		var s wire.StatusReport
		if f.Decode(&s) != nil {
			return false
		}
		p.order(wire.Ack, wire.AckOrder{Seq: s.Seq})
	case wire.Progress:
		var r wire.ProgressReport
		if f.Decode(&r) != nil {
			return false
		}
		l.progressed(p, r)
	case wire.Exit:
		var e wire.ExitReport
		if f.Decode(&e) != nil || !plausible(e.Code, e.Signal) {
			return false
		}
		exit := gang.Exit{Code: e.Code, Signal: e.Signal, By: gang.ExitBy(e.Cause), Message: clean(e.Message)}
		if err := l.srv.store.putExit(l.rec.ID, p.epoch, p.rank, exit); err != nil {
			// Not acknowledged: the agent sends it again.
			l.srv.log.Error().Err(err).Str("workload", string(l.rec.ID)).Int("rank", p.rank).Msg("a report could not be stored")
			return true
		}
		p.order(wire.Ack, wire.AckOrder{Seq: e.Seq})
		l.exited(p.epoch, p.rank, exit)
	}
	return true
}

// plausible: a process can end so.
func plausible(code, signal int) bool { return code >= 0 && code <= 255 && signal >= 0 && signal <= 64 }

func (l *live) progressed(p *peer, r wire.ProgressReport) {
	if r.Fraction < 0 || r.Fraction > 1 || r.Fraction != r.Fraction {
		return
	}
	r.Phase = clean(r.Phase)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers[p.rank] != p {
		return
	}
	if l.progress == nil {
		l.progress = map[int]wire.ProgressReport{}
	}
	l.progress[p.rank] = r
	durable := l.stored == l.rec.Version
	l.rec.touch()
	if durable {
		l.stored = l.rec.Version // nothing of it is stored
	}
	l.wake()
}
