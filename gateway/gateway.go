// Package gateway is the site daemon's heart: it takes the ranks' connections, authenticates each with its
// single-use credential, counts the gang, releases it, follows it to its end and fences everything old. The control
// API for users is here too.
package gateway

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// heartbeat is how often an agent sends a word.
const heartbeat = 15 * time.Second

// logTotal bounds the copies of all ranks' output together, in bytes.
const logTotal = 256 << 20

// Config of a gateway; everything is set by package daemon.
type Config struct {
	Version         string
	Handshake       time.Duration // total, of one dial-in
	Pending         int           // bound on pending handshakes
	PerSource       int
	Widest          int // ranks of the widest allocation
	TLS             *tls.Config
	TLSMode         string // required | optional | off
	Pins            []string
	Attest          string   // how ranks show whose they are: AttestMunge, or "" for not at all
	Munge           string   // path of munge on the nodes; "": that of the PATH
	Unmunge         string   // path of unmunge on this host, likewise
	Addresses       []string // advertised to agents, host:port
	DialTimeout     time.Duration
	OrphanTTL       time.Duration
	RankLostAfter   time.Duration
	CredentialTTL   time.Duration
	AbsenceDeadline time.Duration
	HistoryTTL      time.Duration
	Poll            time.Duration // between two looks at the scheduler; 0: not said
	MaxLive         int           // live workloads of one user; 0: no limit
	MaxCredentials  int           // credentials of one user's live workloads; 0: no limit
	UID             int           // of this process
	Cancel          bool          // may end others' jobs
	Embedded        bool
	Admins          []string
	SiteSHA256      string
	System          string // the scheduler's name
	Now             func() time.Time
}

// Canceller ends a job under this process's uid.
type Canceller interface {
	Cancel(ctx context.Context, id scheduler.JobID, who scheduler.Identity) error
}

// Server is one gateway. It can be served again after it was stopped.
type Server struct {
	cfg      Config
	gate     *credential.Gatekeeper
	fence    *credential.Fence
	store    *Store
	sealer   *sealer
	audit    *Audit
	log      zerolog.Logger
	jobs     Canceller
	poke     func() // asks for an observation soon
	slots    *slots
	delays   delays
	attester *unmunger // of ranks; callers over TCP have their own, and wait for no gang
	counters counters
	logBytes *budget

	background context.Context // ends when the process is to end; durable writes don't stop half way
	seen       atomic.Pointer[scheduler.Facts]
	observed   atomic.Pointer[tickResult]

	mu      sync.Mutex
	live    map[scheduler.WorkloadID]*live
	past    map[scheduler.WorkloadID]*live // over, kept a while for watchers
	byAlloc map[scheduler.AllocationID]*live
	conns   map[net.Conn]bool // everything the gateway owns; true: a rank's
	stopped bool
	open    *connections // of callers
	// reserved is what requests under way take of their callers' limits.
	reserved map[int]share

	serving sync.WaitGroup   // connections
	cancels errgroup.Group   // jobs that are being cancelled
	awake   func() time.Time // the monotonic clock, which no setting of the time changes
}

type tickResult struct {
	at  time.Time
	err error
}

// Parts is what a gateway is made of.
type Parts struct {
	Gate     *credential.Gatekeeper
	Store    *Store
	KeyDir   string // sealing keys
	Audit    *Audit
	Log      zerolog.Logger
	Jobs     Canceller
	Poke     func()
	Lifetime context.Context // of the process
}

// New recovers every live workload from the store.
func New(cfg Config, p Parts) (*Server, error) {
	if err := checkAttest(cfg); err != nil {
		return nil, err
	}
	sealer, err := newSealer(p.KeyDir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, gate: p.Gate, fence: p.Gate.Fence, store: p.Store, sealer: sealer, audit: p.Audit, log: p.Log, jobs: p.Jobs, poke: p.Poke,
		slots: newSlots(cfg.Pending, cfg.PerSource), attester: newUnmunger(cfg.Unmunge), logBytes: newBudget(logTotal), background: p.Lifetime,
		live: map[scheduler.WorkloadID]*live{}, past: map[scheduler.WorkloadID]*live{}, byAlloc: map[scheduler.AllocationID]*live{},
		conns: map[net.Conn]bool{}, reserved: map[int]share{}, open: newConnections(cfg.MaxLive),
	}
	s.cancels.SetLimit(cancelsAtOnce)
	s.awake = time.Now
	records, err := p.Store.live()
	if err != nil {
		return nil, fmt.Errorf("recovering workloads: %w", err)
	}
	for _, r := range records {
		l, err := s.recover(r)
		if err != nil {
			return nil, fmt.Errorf("recovering workload %s: %w", r.ID, err)
		}
		s.add(l)
	}
	return s, nil
}

// recover puts a stored workload back to where it stood, with no rank connected and the clocks starting afresh.
func (s *Server) recover(r *record) (*live, error) {
	l := s.newLive(r)
	now := s.now()
	var events []gang.Event
	switch {
	case r.Release != nil:
		exits, err := s.store.exits(r.ID, r.Epoch)
		if err != nil {
			return nil, err
		}
		l.gang, events = gang.Restore(r.Release.Members, exits, r.Outcome, l.limits(), now)
	case r.Outcome != nil: // it ended before it was released; ranks that come back are told so
		events = l.gang.Stop(*r.Outcome, now)
	default:
		return l, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.act(events, now)
	return l, nil
}

func (s *Server) now() time.Time { return s.cfg.Now() }

func (s *Server) facts() scheduler.Facts {
	if f := s.seen.Load(); f != nil {
		return *f
	}
	return scheduler.Facts{}
}

// sees tells whether the scheduler shows this process the jobs of uid. Where it can't be told, it doesn't, and a job's
// absence in an answer says nothing.
func (s *Server) sees(uid int) bool { return uid == s.cfg.UID || s.facts().SeesOthers }

func (s *Server) add(l *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[l.rec.ID] = l
	for _, a := range l.rec.Attempts {
		s.byAlloc[a.ID] = l
	}
}

func (s *Server) byAllocation(id string) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byAlloc[scheduler.AllocationID(id)]
}

func (s *Server) all() []*live {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*live, 0, len(s.live))
	for _, l := range s.live {
		all = append(all, l)
	}
	return all
}

// LiveCount is the number of workloads that are not over.
func (s *Server) LiveCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// retire forgets a workload that is over: every epoch is fenced, its secrets go, its connections close. The caller
// holds l.mu, and the record is stored.
func (s *Server) retire(l *live) {
	if l.retired || l.stored != l.rec.Version {
		return // not durable yet: the next tick tries again
	}
	l.retired, l.retiredAt = true, s.now()
	for _, a := range l.rec.Attempts {
		if err := s.fence.Raise(s.background, string(a.ID), fencedForever); err != nil {
			s.log.Error().Err(err).Str("workload", string(l.rec.ID)).Msg("a workload that is over could not be fenced")
		}
	}
	if err := s.sealer.forget(l.rec.ID); err != nil {
		s.log.Error().Err(err).Str("workload", string(l.rec.ID)).Msg("a sealing key could not be removed")
	}
	s.audit.decision("ended", l.rec.UID, string(l.rec.ID), fmt.Sprintf("%s %s: %s", l.rec.Phase, l.rec.Reason, l.rec.Message))
	for _, p := range l.peers {
		if l.gang.State() != gang.Done { // the others have their last order and leave by themselves
			p.close()
		}
	}
	l.wake()
	s.mu.Lock()
	delete(s.live, l.rec.ID)
	for _, a := range l.rec.Attempts {
		delete(s.byAlloc, a.ID)
	}
	s.past[l.rec.ID] = l
	s.mu.Unlock()
}

// fencedForever is a floor above every epoch.
const fencedForever = int64(1)<<62 - 1

func (s *Server) unseal(id scheduler.WorkloadID) (api.Start, error) {
	sealed, err := s.store.sealed(id)
	if err != nil {
		return api.Start{}, err
	}
	return s.sealer.open(id, sealed)
}

// Run looks at all clocks until ctx ends. It must run while the gateway is served.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	defer func() { _ = s.cancels.Wait() }() // none of them has an error to tell
	hourly := s.now()
	watched := s.awake()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before := watched
		watched = s.awake()
		now := s.now()
		if gap := watched.Sub(before); gap > unwatched {
			s.wasAway(gap, now)
		}
		s.forAll(func(l *live) { l.tick(now) })
		s.endJobs(ctx, now)
		s.audit.sumUp(now)
		s.forgetPast(now)
		if now.After(hourly) {
			hourly = now.Add(time.Hour)
			s.housekeep(ctx, now)
		}
	}
}

// pastKept is how long a workload that is over stays in memory, so that watchers see its end and its logs.
const pastKept = 10 * time.Minute

func (s *Server) forgetPast(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.past {
		if now.After(l.retiredAt.Add(pastKept)) {
			l.logs.free()
			delete(s.past, id)
		}
	}
}

func (s *Server) housekeep(ctx context.Context, now time.Time) {
	if _, err := s.fence.Prune(ctx, now); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn().Err(err).Msg("the fence could not be pruned")
	}
	const batch = 1000
	if n, err := s.store.prune(now.Add(-s.cfg.HistoryTTL), batch); err != nil {
		s.log.Warn().Err(err).Msg("history could not be pruned")
	} else if n > 0 {
		s.log.Info().Int("workloads", n).Msg("history pruned")
	}
}

// newHex returns twelve random hex digits.
func newHex() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
