package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Audit writes one record per dial-in and per decision, as lines of JSON. Refused dial-ins of one source, control
// connections of one source and refusals of one user over auditRate a second are summed up in the next second's record.
type Audit struct {
	log zerolog.Logger
	out *rotating
	now func() time.Time

	mu     sync.Mutex
	second int64
	seen   map[summed]int
}

// summed is what records are counted by.
type summed struct {
	event  string
	source netip.Addr
	uid    int
}

// The audit log's size: auditFiles files of auditFileSize bytes, and records of one source a second.
const (
	auditFiles    = 8
	auditFileSize = 64 << 20
	auditRate     = 10
)

// OpenAudit opens dir/audit.log, 0600.
func OpenAudit(dir string, now func() time.Time) (*Audit, error) {
	out := &rotating{path: filepath.Join(dir, "audit.log"), size: auditFileSize, keep: auditFiles}
	if err := out.open(); err != nil {
		return nil, err
	}
	return &Audit{log: zerolog.New(out), out: out, now: now, seen: map[summed]int{}}, nil
}

// Close closes the file.
func (a *Audit) Close() error { return a.out.close() }

// dialIn is what is recorded of one connection of an agent.
type dialIn struct {
	Source     netip.AddrPort
	Verdict    string // accepted, refused, busy, source, evicted, timeout, closed, unanswered
	Cause      string
	Attest     string // what is wrong with the attestation
	Allocation string
	Epoch      int64
	Rank       int
	Job        string
	Host       string
	Generation string
}

func (a *Audit) dialIn(d dialIn) {
	now := a.now()
	if d.Verdict != "accepted" && a.over(summed{event: "dial_in", source: d.Source.Addr()}, now) {
		return
	}
	e := a.log.Log().Time("time", now.UTC()).Str("event", "dial_in").Str("source", d.Source.String()).Str("verdict", d.Verdict)
	if d.Cause != "" {
		e = e.Str("cause", d.Cause)
	}
	if d.Attest != "" {
		e = e.Str("attest", d.Attest)
	}
	if d.Allocation != "" {
		e = e.Str("allocation", d.Allocation).Int64("epoch", d.Epoch).Int("rank", d.Rank)
	}
	if d.Job != "" {
		e = e.Str("job", clean(d.Job))
	}
	if d.Host != "" {
		e = e.Str("host", clean(d.Host))
	}
	if d.Generation != "" {
		e = e.Str("generation", d.Generation)
	}
	e.Send()
}

// remote records a control connection over TCP; who is nil where it wasn't let in.
func (a *Audit) remote(source netip.AddrPort, verdict, cause string, who *caller) {
	now := a.now()
	if a.over(summed{event: "control", source: source.Addr()}, now) {
		return
	}
	e := a.log.Log().Time("time", now.UTC()).Str("event", "control").Str("source", source.String()).Str("verdict", verdict)
	if cause != "" {
		e = e.Str("cause", cause)
	}
	if who != nil {
		e = e.Int("uid", who.UID).Str("host", who.Host)
	}
	e.Send()
}

// looked records that an administrator was shown what isn't theirs; workload is "" for everybody's.
func (a *Audit) looked(who caller, workload string, owner int) {
	now := a.now()
	if who.UID == owner || a.over(summed{event: "admin", uid: who.UID}, now) {
		return
	}
	e := a.log.Log().Time("time", now.UTC()).Str("event", "admin").Int("uid", who.UID)
	if workload == "" {
		e.Str("text", "was shown everybody's workloads").Send()
		return
	}
	e.Str("workload", workload).Int("owner", owner).Send()
}

// refusal records that a caller was denied something, by the code of the answer.
func (a *Audit) refusal(who caller, route, workload, code, text string) {
	now := a.now()
	if a.over(summed{event: "refused", uid: who.UID}, now) {
		return
	}
	a.log.Log().Time("time", now.UTC()).Str("event", "refused").Int("uid", who.UID).Str("route", route).Str("workload", clean(workload)).
		Str("code", code).Str("text", clean(text)).Send()
}

// over counts a record of a kind and tells whether it is only summed up.
func (a *Audit) over(src summed, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	a.seen[src]++
	return a.seen[src] > auditRate
}

// sumUp writes the sums of a second that is over.
func (a *Audit) sumUp(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
}

func (a *Audit) turn(now time.Time) {
	if now.Unix() == a.second {
		return
	}
	for s, n := range a.seen {
		if n > auditRate {
			e := a.log.Log().Time("time", now.UTC()).Str("event", s.event).Str("verdict", "summed up").Int("more", n-auditRate)
			if s.source.IsValid() {
				e = e.Str("source", s.source.String())
			} else {
				e = e.Int("uid", s.uid)
			}
			e.Send()
		}
	}
	clear(a.seen)
	a.second = now.Unix()
}

// decision records what was decided of a workload and for whom.
func (a *Audit) decision(event string, uid int, workload, text string) {
	a.log.Log().Time("time", a.now().UTC()).Str("event", event).Int("uid", uid).Str("workload", workload).Str("text", clean(text)).Send()
}

// rotating is a file that is renamed to name.1 … name.<keep-1> when it is full.
type rotating struct {
	mu   sync.Mutex
	path string
	size int64
	keep int
	file *os.File
	at   int64
}

func (r *rotating) open() error {
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("opening the audit log: %w", err)
	}
	r.file, r.at = f, info.Size()
	return nil
}

// Write appends one record. A full disk loses records, not the daemon.
func (r *rotating) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return 0, os.ErrClosed
	}
	if r.at+int64(len(p)) > r.size {
		r.rotate()
	}
	n, err := r.file.Write(p)
	r.at += int64(n)
	return n, err
}

func (r *rotating) rotate() {
	for i := r.keep - 1; i > 1; i-- {
		_ = os.Rename(r.path+"."+strconv.Itoa(i-1), r.path+"."+strconv.Itoa(i)) // missing ones are fine
	}
	if err := os.Rename(r.path, r.path+".1"); err != nil {
		return // goes on in the old file
	}
	old := r.file
	if err := r.open(); err != nil {
		r.file = old
		return
	}
	old.Close()
}

func (r *rotating) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}
