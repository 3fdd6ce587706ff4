package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/scheduler"
)

func TestMain(m *testing.M) {
	// The test program stands in for ranks, or for attackers, in a process of their own.
	for variable, stand := range map[string]func(string) error{loadVariable: generate, attackEnv: attackMain} {
		if spec := os.Getenv(variable); spec != "" {
			if err := stand(spec); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

// clock is the tests' time: it goes with the real one until it is moved.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// rig is a gateway on a state folder of its own, with everything under it real: store, fence, secret, TLS key.
type rig struct {
	t      testing.TB
	dir    string
	db     *bbolt.DB
	fence  *credential.Fence
	gate   *credential.Gatekeeper
	id     Identity
	audit  *Audit
	server *Server
	clock  *clock
	jobs   Canceller
	poked  chan struct{}
	addr   string // of the agents' listener
	halt   func() // ends what start started; may be called twice
}

// newRig prepares a gateway; edit changes its configuration. Nothing is served until serve.
func newRig(t testing.TB, edit ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), clock: &clock{}, poked: make(chan struct{}, 64)}
	db, err := bbolt.Open(filepath.Join(r.dir, "state.db"), 0o600, credential.StoreOptions())
	require.NoError(t, err)
	db.MaxBatchDelay = time.Millisecond
	r.db = db
	t.Cleanup(func() { db.Close() })
	r.id, err = LoadIdentity(r.dir)
	require.NoError(t, err)
	r.audit, err = OpenAudit(r.dir, r.clock.now)
	require.NoError(t, err)
	t.Cleanup(func() { r.audit.Close() })
	r.build(edit...)
	return r
}

// build opens the fence and makes a Server on the store, as a daemon does when it starts.
func (r *rig) build(edit ...func(*Config)) {
	r.t.Helper()
	secret, err := credential.LoadSecret(r.dir)
	require.NoError(r.t, err)
	r.fence, err = credential.OpenFence(r.db)
	require.NoError(r.t, err)
	r.gate = &credential.Gatekeeper{Secret: secret, Fence: r.fence, Now: r.clock.now}
	store, err := NewStore(r.db)
	require.NoError(r.t, err)
	cfg := Config{
		Version: "test", Handshake: 5 * time.Second, Pending: 64, PerSource: 16, Widest: 4096,
		TLS: r.id.Config, TLSMode: "required", Pins: []string{r.id.Pin}, Addresses: []string{"127.0.0.1:1"},
		DialTimeout: time.Minute, OrphanTTL: 15 * time.Minute, RankLostAfter: 5 * time.Minute, CredentialTTL: time.Hour,
		AbsenceDeadline: 10 * time.Minute, HistoryTTL: time.Hour, UID: os.Getuid(), System: "local", Now: r.clock.now,
	}
	for _, e := range edit {
		e(&cfg)
	}
	r.server, err = New(cfg, Parts{
		Gate: r.gate, Store: store, KeyDir: filepath.Join(r.dir, "keys"), Audit: r.audit, Log: zerolog.Nop(), Jobs: r.jobs,
		Poke: func() {
			select {
			case r.poked <- struct{}{}:
			default:
			}
		},
		Lifetime: context.Background(),
	})
	require.NoError(r.t, err)
}

// serve runs burner, clocks and listener until the test ends or stop is called.
func (r *rig) serve() *rig {
	r.t.Helper()
	ln, err := Listen("127.0.0.1:0")
	require.NoError(r.t, err)
	r.addr = ln.Addr().String()
	r.serveOn(ln)
	return r
}

func (r *rig) serveOn(ln net.Listener) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	fencing, endFence := context.WithCancel(context.Background())
	server, fence := r.server, r.fence
	var wg, burner sync.WaitGroup
	burner.Go(func() { _ = fence.Run(fencing) })
	wg.Go(func() {
		if err := server.Serve(ctx, ln); err != nil {
			r.t.Errorf("serve: %v", err)
		}
	})
	wg.Go(func() { _ = server.Run(ctx) })
	r.halt = sync.OnceFunc(func() {
		cancel()
		server.Stop()
		wg.Wait()
		endFence()
		burner.Wait()
	})
	r.t.Cleanup(r.halt)
}

// restart stops the gateway and serves a new one on the same store.
func (r *rig) restart(edit ...func(*Config)) {
	r.t.Helper()
	r.halt()
	r.build(edit...)
	r.serve()
}

// request for a workload of that many ranks, one a node.
func request(ranks int) api.Create {
	return api.Create{
		Request: scheduler.Request{
			System: "local", Profile: "p", Name: "fold", JobNamePrefix: "openai4s", Kind: scheduler.Batch, Nodes: ranks, RanksPerNode: 1,
			Walltime: time.Hour, GangTimeout: 10 * time.Minute, Workdir: "/tmp", RuntimeDir: "/tmp/run", Output: "out-%w-%j.txt",
			Signal: scheduler.Signal{BeforeWalltime: time.Minute, Grace: time.Second},
		},
		Start: api.Start{Argv: []string{"true"}, Secrets: map[string]string{"HF_TOKEN": "hunter2"}},
	}
}

// workload is one that was made, with the credential lines of each epoch.
type workload struct {
	*live
	id    scheduler.WorkloadID
	lines [][][]byte // [epoch][rank]
}

// create makes a workload as the API does, for this process's uid.
func (r *rig) create(ranks int, edit ...func(*api.Create)) *workload {
	r.t.Helper()
	c := request(ranks)
	c.Request.UpstreamFiles = true
	for _, e := range edit {
		e(&c)
	}
	s := r.server
	rec := &record{
		ID: scheduler.WorkloadID("wl_" + newHex()), UID: os.Getuid(), Owner: "me", Request: c.Request, Recover: c.Recover,
		Phase: scheduler.Submitting, Created: s.now(), Version: 1,
	}
	s.newAllocation(rec)
	made, err := s.bundles(context.Background(), rec)
	require.NoError(r.t, err)
	sealed, err := s.sealer.seal(rec.ID, c.Start)
	require.NoError(r.t, err)
	_, err = s.store.create(rec, sealed)
	require.NoError(r.t, err)
	l := s.newLive(rec)
	s.add(l)
	return &workload{live: l, id: rec.ID, lines: made.Upstream}
}

// again is the same workload after a restart.
func (r *rig) again(w *workload) *workload {
	r.t.Helper()
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for _, m := range []map[scheduler.WorkloadID]*live{r.server.live, r.server.past} {
		if l := m[w.id]; l != nil {
			return &workload{live: l, id: w.id, lines: w.lines}
		}
	}
	r.t.Fatalf("workload %s was not recovered", w.id)
	return nil
}

// edit changes the record behind the machine's back.
func (w *workload) edit(do func(*record)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do(w.rec)
}

func (w *workload) phase() scheduler.Phase { return w.view().Phase }

// join dials a rank of an epoch in as an agent of a job and leaves it registered.
func (r *rig) join(w *workload, epoch, rank int, job string) (*client, wire.Answer) {
	r.t.Helper()
	c := r.dial().hello(w.lines[epoch][rank], agentOf(job, string(rune('a'+rank))))
	a := c.admitted()
	r.eventually("registered", func() bool { // the answer comes first
		w.mu.Lock()
		defer w.mu.Unlock()
		p := w.peers[rank]
		return p != nil && p.conn.RemoteAddr().String() == c.conn.LocalAddr().String()
	})
	return c, a
}

// auditText is the audit log so far.
func (r *rig) auditText() string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "audit.log"))
	require.NoError(r.t, err)
	return string(data)
}

// dialIns are the audit log's records of dial-ins so far.
func (r *rig) dialIns() []map[string]any { return r.records("dial_in") }

// records are the audit log's records of one kind so far.
func (r *rig) records(event string) []map[string]any {
	r.t.Helper()
	var all []map[string]any
	for line := range strings.Lines(r.auditText()) {
		var m map[string]any
		decodeJSON(r.t, []byte(line), &m)
		if m["event"] == event {
			all = append(all, m)
		}
	}
	return all
}

func decodeJSON(t testing.TB, text []byte, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, into), "%q", text)
}

// createBody is what a workload is made of.
type createBody = api.Create

// lastDialIn waits until n dial-ins are recorded and returns the last one's verdict and cause.
func (r *rig) lastDialIn(n int) (verdict, cause string) { return r.verdict("dial_in", n) }

// verdict waits for the n-th record of a kind and returns its verdict and cause.
func (r *rig) verdict(event string, n int) (verdict, cause string) {
	r.t.Helper()
	var found []map[string]any
	r.eventually(fmt.Sprintf("record %d of %s", n, event), func() bool {
		found = r.records(event)
		return len(found) >= n
	})
	verdict, _ = found[n-1]["verdict"].(string)
	cause, _ = found[n-1]["cause"].(string)
	return verdict, cause
}

// eventually polls until the condition holds.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	require.Eventually(r.t, ok, 10*time.Second, 2*time.Millisecond, what)
}

// noSlotTaken waits until every handshake is over: a slot is given back after the peer has its answer.
func (r *rig) noSlotTaken() {
	r.t.Helper()
	r.eventually("every slot given back", func() bool { return r.server.slots.inUse() == 0 })
}
