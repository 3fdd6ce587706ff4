package breakage_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// crashes hands out the faults one at a time: a crash ends every connection, and with them the faults they would have
// met, so what wasn't met comes again.
type crashes struct {
	mu    sync.Mutex
	left  []fault
	share int // how many more this run gets
	out   bool
	last  time.Time
	dying chan chan struct{} // the gateway is to be killed now; closed once it is dead
	over  <-chan struct{}
}

func (c *crashes) plan(int) (fault, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out || c.share == 0 || len(c.left) == 0 {
		return fault{}, false
	}
	c.out = true
	return c.left[0], true
}

func (c *crashes) done(_ fault, met bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = false
	switch {
	case met:
		c.left, c.share, c.last = c.left[1:], c.share-1, time.Now()
	case len(c.left) > 1: // another first
		c.left = append(c.left[1:], c.left[0])
	}
}

func (c *crashes) crash() {
	dead := make(chan struct{})
	select {
	case c.dying <- dead:
		<-dead
	case <-c.over:
	}
}

// allow gives a run its share and returns how many are left in all.
func (c *crashes) allow(share int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.share, c.last = share, time.Now()
	return len(c.left)
}

// spent tells whether a run has had its share, or waits for it in vain.
func (c *crashes) spent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.share == 0 || len(c.left) == 0 || time.Since(c.last) > 5*time.Second
}

// TestDaemonKilledAtEveryMessage: kill -9 of the daemon when a message is on its way and never arrives. Where that
// message is the answer to a hello, the credential is burnt and nobody was told; where it is the next frame, the rank
// was told and the daemon didn't hear of it; where it is an acknowledgement, what was stored was never confirmed.
// Every rank comes back, none runs twice.
func TestDaemonKilledAtEveryMessage(t *testing.T) {
	const records, share = 9, 4
	c := &crashes{dying: make(chan chan struct{}), over: t.Context().Done()}
	for record := 1; record <= records; record++ {
		c.left = append(c.left, fault{true, record, crash}, fault{false, record, crash})
	}
	p := newProxy(t, c.plan)
	p.done, p.crash = c.done, c.crash
	r := newRig(t, rig.Options{Advertise: []string{p.ln.Addr().String()}})
	p.target.Store(fmt.Sprintf("127.0.0.1:%d", r.Port))
	alice := r.Alice(t)
	crashing := func(until func() bool) {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case dead := <-c.dying:
				r.Daemon.Kill(t)
				close(dead)
				r.Daemon.Start(t)
			case <-tick.C:
				if until() {
					return
				}
			}
		}
	}
	for run := 0; c.allow(share) > 0; run++ {
		require.Less(t, run, 12, "never met: %v", c.left)
		id := alice.Submit(t, rig.Shell(4, `echo "began $RANK"; while ! test -e go; do echo on; sleep 0.3; done; echo "end $RANK"`, ""))
		path := alice.Status(t, id).Text("output")
		crashing(c.spent)
		touchBeside(t, path, "go")
		var w rig.Doc
		began := time.Now()
		crashing(func() bool {
			w = alice.Status(t, id)
			require.Less(t, time.Since(began), rig.Patience, "%s", w)
			return w.Over()
		})
		require.Equal(t, "COMPLETED", w.Phase(), "run %d: %s", run, w)
		require.Equal(t, 4, w.Int("ranks", "exited"), "%s", w)
		awaitOutput(t, alice, id, "end", 4)
		text := output(t, alice, id)
		for rank := range 4 {
			require.Equal(t, 1, strings.Count(text, fmt.Sprintf("began %d\n", rank)), "rank %d:\n%s", rank, text)
			require.Equal(t, 1, strings.Count(text, fmt.Sprintf("end %d\n", rank)), "rank %d:\n%s", rank, text)
		}
	}
}
