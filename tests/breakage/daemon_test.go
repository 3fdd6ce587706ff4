package breakage_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// untilGo runs until the file go is in the work folder.
const untilGo = "echo up; while ! test -e go; do sleep 0.1; done; echo end $RANK"

// TestDaemonKilledAndRestarted: a crash in mid-run costs nothing, however long the daemon is away.
func TestDaemonKilledAndRestarted(t *testing.T) {
	for name, away := range map[string]time.Duration{"at once": 0, "after a minute": time.Minute} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rig.Options{})
			alice := r.Alice(t)
			id := alice.Submit(t, rig.Shell(4, untilGo, ""))
			awaitOutput(t, alice, id, "up", 4)
			r.Daemon.Kill(t)
			time.Sleep(away)
			r.Daemon.Start(t)
			alice.AwaitStatus(t, id, "whole again", func(d rig.Doc) bool { return d.Int("ranks", "live") == 4 })
			touch(t, alice, id, "go")
			w := alice.AwaitPhase(t, id, "COMPLETED")
			require.Equal(t, 4, w.Int("ranks", "exited"), "%s", w)
			awaitOutput(t, alice, id, "end", 4)
		})
	}
}

// TestDaemonStandsStill: a daemon that was stopped for longer than a rank may be silent blames nobody for it.
func TestDaemonStandsStill(t *testing.T) {
	r := newRig(t, rig.Options{Gateway: `rank_lost_after = "1m"`})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, untilGo, ""))
	awaitOutput(t, alice, id, "up", 4)
	r.Daemon.Signal(t, syscall.SIGSTOP)
	time.Sleep(75 * time.Second)
	r.Daemon.Signal(t, syscall.SIGCONT)
	alice.AwaitStatus(t, id, "whole again", func(d rig.Doc) bool { return d.Int("ranks", "live") == 4 })
	time.Sleep(2 * time.Second) // the clocks have been looked at
	touch(t, alice, id, "go")
	w := alice.AwaitPhase(t, id, "COMPLETED")
	require.Equal(t, 4, w.Int("ranks", "exited"), "%s", w)
}

// TestDaemonAwayAtTheEnd: ranks whose commands end meanwhile report when it is back.
func TestDaemonAwayAtTheEnd(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, untilGo, ""))
	awaitOutput(t, alice, id, "up", 4)
	path := alice.Status(t, id).Text("output")
	r.Daemon.Kill(t)
	touchBeside(t, path, "go")
	awaitFile(t, path, "end", 4)
	r.Daemon.Start(t)
	alice.AwaitPhase(t, id, "COMPLETED")
}

// TestDaemonKilledWhileForming: what was admitted comes back, what was not comes in.
func TestDaemonKilledWhileForming(t *testing.T) {
	r := newRig(t, rig.Options{Agent: holdingAgent(t, 3)})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(4, "echo ran", ""))
	alice.AwaitStatus(t, id, "forming with three ranks", func(d rig.Doc) bool { return d.Int("ranks", "live") == 3 })
	r.Daemon.Kill(t)
	r.Daemon.Start(t)
	goOn(t, r)
	alice.AwaitPhase(t, id, "COMPLETED")
	awaitOutput(t, alice, id, "ran", 4)
}

// TestDaemonNeverBack: the job ends right by itself, and once a daemon is there the owner's next command reports the
// rest from RUN.
func TestDaemonNeverBack(t *testing.T) {
	r := newRig(t, rig.Options{})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(3, untilGo, ""))
	awaitOutput(t, alice, id, "up", 3)
	path := alice.Status(t, id).Text("output")
	r.Daemon.Kill(t)
	touchBeside(t, path, "go")
	awaitFile(t, path, "end", 3)
	rig.Await(t, rig.Patience, "the job to end by itself", func() bool { return jobGone(t, r) })
	r.Daemon.Start(t)
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
}
