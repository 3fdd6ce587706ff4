package credential

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// faultyLedger is a store that fails, stalls or dies where a test says so.
type faultyLedger struct {
	*bbolt.DB
	before  atomic.Pointer[func() error] // an error keeps the write from happening
	after   atomic.Pointer[func() error] // an error comes after the commit: it is durable, and nobody hears so
	commits atomic.Int64
}

func (l *faultyLedger) Update(write func(*bbolt.Tx) error) error {
	if before := l.before.Load(); before != nil {
		if err := (*before)(); err != nil {
			return err
		}
	}
	if err := l.DB.Update(write); err != nil {
		return err
	}
	l.commits.Add(1)
	if after := l.after.Load(); after != nil {
		return (*after)()
	}
	return nil
}

func newFaulty(t testing.TB) (*Gatekeeper, *faultyLedger) {
	t.Helper()
	l := &faultyLedger{DB: newStore(t)}
	f, err := openFence(l)
	require.NoError(t, err)
	l.commits.Store(0)
	return &Gatekeeper{Secret: testSecret("a"), Fence: f, Now: at(fixedNow)}, l
}

func failing(err error) *func() error {
	f := func() error { return err }
	return &f
}

func TestFailedWriteAdmitsNothingUntilAProbe(t *testing.T) {
	for name, fault := range map[string]func(*faultyLedger) *atomic.Pointer[func() error]{
		"nothing written":               func(l *faultyLedger) *atomic.Pointer[func() error] { return &l.before },
		"written, and the sync said no": func(l *faultyLedger) *atomic.Pointer[func() error] { return &l.after },
	} {
		t.Run(name, func(t *testing.T) {
			g, l := newFaulty(t)
			run(t, g.Fence)
			line := g.Secret.Issue(claim())
			fault(l).Store(failing(syscall.EIO))

			_, err := g.Admit(t.Context(), line, attempt("a"), ranks(4))
			require.ErrorIs(t, err, ErrFenceUnhealthy)
			require.ErrorIs(t, err, syscall.EIO)
			require.ErrorIs(t, g.Fence.Healthy(), syscall.EIO)
			_, err = g.Admit(t.Context(), g.Secret.Issue(claim()), attempt("a"), ranks(4))
			require.ErrorIs(t, err, ErrFence, "another one, while the disk is bad")

			fault(l).Store(nil)
			require.Eventually(t, func() bool { return g.Fence.Healthy() == nil }, 10*time.Second, 5*time.Millisecond)
			_, err = g.Admit(t.Context(), line, attempt("a"), ranks(4))
			require.NoError(t, err)
			_, err = g.Admit(t.Context(), line, attempt("b"), ranks(4))
			require.Equal(t, CauseAttempt, cause(err))
		})
	}
}

// Every way to write that fails stops admission, and the floor holds in memory until it can be stored.
func TestFailedRaiseHolds(t *testing.T) {
	g, l := newFaulty(t)
	c := claim()
	l.before.Store(failing(syscall.ENOSPC))
	err := g.Fence.Raise(t.Context(), c.Allocation, c.Epoch+1)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorIs(t, g.Fence.Healthy(), ErrFenceUnhealthy)
	require.Equal(t, c.Epoch+1, g.Fence.Floor(c.Allocation))
	l.before.Store(nil)

	run(t, g.Fence)
	require.Eventually(t, func() bool { return g.Fence.Healthy() == nil }, 10*time.Second, 5*time.Millisecond)
	_, why := admit(t, g, c, attempt("a"))
	require.Equal(t, CauseStaleEpoch, why)
	again, err := openFence(l) // the probe made it durable
	require.NoError(t, err)
	require.Equal(t, c.Epoch+1, again.Floor(c.Allocation))
}

// Probes come more and more rarely while they fail.
func TestProbesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newFaulty(t)
		var probes atomic.Int64
		count := func() error { probes.Add(1); return syscall.EIO }
		l.before.Store(&count)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Fence.Run(ctx) }()

		require.Error(t, g.Fence.Raise(ctx, "alloc_01", 1))
		<-time.After(time.Minute)
		first := probes.Load()
		require.Greater(t, first, int64(5))
		require.Less(t, first, int64(40))
		<-time.After(10 * time.Minute)
		require.Greater(t, probes.Load(), first+20, "it never gives up")
		require.Less(t, probes.Load(), first+120)

		l.before.Store(nil)
		<-time.After(2 * lastProbe)
		require.NoError(t, g.Fence.Healthy())
		cancel()
		require.NoError(t, <-done)
	})
}

// A crash between commit and answer: the rank presents its credential to the next daemon, which takes it again from
// the same attempt and from no other.
func TestCrashBetweenCommitAndAnswer(t *testing.T) {
	g, l := newFaulty(t)
	stop := run(t, g.Fence)
	line := g.Secret.Issue(claim())
	l.after.Store(failing(errors.New("crash")))
	_, err := g.Admit(t.Context(), line, attempt("a"), ranks(4))
	require.ErrorIs(t, err, ErrFence)
	stop()
	path := l.DB.Path()
	require.NoError(t, l.DB.Close())

	g.Fence, err = OpenFence(openStore(t, path))
	require.NoError(t, err)
	run(t, g.Fence)
	_, err = g.Admit(t.Context(), line, nil, ranks(4))
	require.Equal(t, CauseReplayed, cause(err))
	_, err = g.Admit(t.Context(), line, attempt("b"), ranks(4))
	require.Equal(t, CauseAttempt, cause(err))
	got, err := g.Admit(t.Context(), line, attempt("a"), ranks(4))
	require.NoError(t, err)
	require.True(t, got.Again)
}

// gate holds every write until it is opened.
func gate(l *faultyLedger) (entered chan struct{}, open func()) {
	entered = make(chan struct{}, 1024)
	release := make(chan struct{})
	hold := func() error { entered <- struct{}{}; <-release; return nil }
	l.before.Store(&hold)
	return entered, sync.OnceFunc(func() { l.before.Store(nil); close(release) })
}

// However long a sync takes, what doesn't need the store goes on, and all that waited shares the next one.
func TestSlowSyncHoldsNobodyElse(t *testing.T) {
	g, l := newFaulty(t)
	run(t, g.Fence)
	entered, open := gate(l)
	defer open()

	const waiting = 50
	results := make(chan error, waiting+1)
	present := func(rank int) {
		c := claim()
		c.Rank = rank
		_, err := g.Admit(context.Background(), g.Secret.Issue(c), attempt("a"), ranks(100))
		results <- err
	}
	go present(0)
	<-entered // the first is in its sync
	for rank := range waiting {
		go present(rank + 1)
	}
	require.Eventually(t, func() bool {
		g.Fence.queue.mu.Lock()
		defer g.Fence.queue.mu.Unlock()
		return len(g.Fence.queue.waiting) == waiting
	}, 10*time.Second, time.Millisecond)

	require.NoError(t, g.Fence.Healthy())
	require.Zero(t, g.Fence.Floor("alloc_01"))
	g.Fence.Used(claim())
	_, err := g.Admit(t.Context(), testSecret("b").Issue(claim()), nil, ranks(4))
	require.Equal(t, CauseSignature, cause(err))
	require.Empty(t, results)

	open()
	for range waiting + 1 {
		require.NoError(t, <-results)
	}
	require.EqualValues(t, 2, l.commits.Load())
}

// Copies of one credential in one batch: the first wins, whoever else is told so.
func TestDuplicatesInOneBatch(t *testing.T) {
	g, l := newFaulty(t)
	c, other := claim(), claim()
	other.Rank = 2
	batch := []*burn{
		{claim: c, attempt: attempt("a")},
		{claim: c, attempt: attempt("b")},
		{claim: c},
		{claim: other, attempt: attempt("b")},
		{claim: c, attempt: attempt("a")},
	}
	for _, b := range batch {
		b.done = make(chan struct{})
	}
	g.Fence.burnAll(batch)
	causes := make([]string, len(batch))
	for i, b := range batch {
		<-b.done
		causes[i] = cause(b.err)
	}
	require.Equal(t, []string{"", CauseAttempt, CauseReplayed, "", ""}, causes)
	require.False(t, batch[0].judged.again)
	require.True(t, batch[4].judged.again)
	require.EqualValues(t, 1, l.commits.Load())

	// Replays alone are answered without a sync.
	replay := &burn{claim: c, done: make(chan struct{})}
	g.Fence.burnAll([]*burn{replay})
	require.Equal(t, CauseReplayed, cause(replay.err))
	require.EqualValues(t, 1, l.commits.Load())
}

// The floor rises, or the nonce is forgotten, between the first look and the burn.
func TestBurnLooksAgain(t *testing.T) {
	g, _ := newFaulty(t)
	c := claim()
	require.NoError(t, g.Fence.Raise(t.Context(), c.Allocation, c.Epoch+1))
	late := &burn{claim: c, done: make(chan struct{})}
	g.Fence.burnAll([]*burn{late})
	require.Equal(t, CauseStaleEpoch, cause(late.err))

	g, _ = newFaulty(t)
	first := &burn{claim: c, done: make(chan struct{})}
	g.Fence.burnAll([]*burn{first})
	require.NoError(t, first.err)
	_, err := g.Fence.Prune(t.Context(), time.Unix(fixedExpiry, 0))
	require.NoError(t, err)
	late = &burn{claim: c, done: make(chan struct{})}
	g.Fence.burnAll([]*burn{late})
	require.Equal(t, CauseExpired, cause(late.err))
}

func TestRunEndsAndStartsAgain(t *testing.T) {
	g, l := newFaulty(t)
	stop := run(t, g.Fence)
	_, why := admit(t, g, claim(), attempt("a"))
	require.Empty(t, why)
	require.ErrorIs(t, g.Fence.Run(t.Context()), ErrFenceRunning)

	// One waits behind a sync when Run ends: it is answered.
	entered, open := gate(l)
	results := make(chan error, 2)
	present := func() {
		_, err := g.Admit(context.Background(), g.Secret.Issue(claim()), attempt("a"), ranks(4))
		results <- err
	}
	go present()
	<-entered
	go present()
	require.Eventually(t, func() bool {
		g.Fence.queue.mu.Lock()
		defer g.Fence.queue.mu.Unlock()
		return len(g.Fence.queue.waiting) == 1
	}, 10*time.Second, time.Millisecond)
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	open()
	<-ended
	for range 2 {
		if err := <-results; err != nil {
			require.ErrorIs(t, err, ErrFenceStopped)
		}
	}
	_, err := g.Admit(t.Context(), g.Secret.Issue(claim()), attempt("a"), ranks(4))
	require.ErrorIs(t, err, ErrFenceStopped)
	require.ErrorIs(t, err, ErrFence)

	run(t, g.Fence)
	require.Eventually(t, func() bool {
		_, err := g.Admit(t.Context(), g.Secret.Issue(claim()), attempt("a"), ranks(4))
		return err == nil
	}, 10*time.Second, time.Millisecond)
}

// Of many that present one credential at once, with as many attempt secrets, one is admitted.
func TestOneOfManyAttempts(t *testing.T) {
	g := newGatekeeper(t)
	for range 5 {
		line := g.Secret.Issue(claim())
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				_, err := g.Admit(context.Background(), line, attempt(string(rune('a'+i))), ranks(4))
				switch {
				case err == nil:
					admitted.Add(1)
				case cause(err) != CauseAttempt:
					t.Errorf("unexpected: %v", err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, admitted.Load())
	}
}

// A store that panics is damage, and the burner outlives it.
func TestStorePanicIsDamage(t *testing.T) {
	g, l := newFaulty(t)
	run(t, g.Fence)
	blow := func() error { panic("page 7: invalid") }
	l.before.Store(&blow)
	_, err := g.Admit(t.Context(), g.Secret.Issue(claim()), attempt("a"), ranks(4))
	require.ErrorIs(t, err, ErrFenceCorrupt)
	require.ErrorContains(t, err, "page 7")
}
