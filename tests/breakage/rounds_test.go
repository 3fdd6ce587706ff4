package breakage_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// Rounds of random breakage: O4S_ROUNDS of them (make soak), else defaultRounds, from the seed O4S_SEED or a random one.
const perRig = 10

func number(t *testing.T, name string, or int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return or
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// TestRandomRounds breaks one thing after the other while workloads run. Each must reach a true end, nothing may be
// doubled, and nothing may be left (the rig looks).
func TestRandomRounds(t *testing.T) {
	seed := uint64(number(t, "O4S_SEED", time.Now().UnixNano()))
	rounds := int(number(t, "O4S_ROUNDS", defaultRounds))
	t.Logf("seed %d, %d rounds: O4S_SEED=%d O4S_ROUNDS=%d repeats them", seed, rounds, seed, rounds)
	t.Parallel()
	for first := 0; first < rounds; first += perRig {
		t.Run(fmt.Sprintf("from %d", first), func(t *testing.T) {
			r := newRig(t, rig.Options{})
			random := rand.New(rand.NewPCG(seed, uint64(first)))
			for round := first; round < min(first+perRig, rounds); round++ {
				breakOnce(t, r, random, round)
			}
		})
	}
}

// breakage is what happens to a running workload, and the ends that are true then.
type breakage struct {
	name string
	do   func(t *testing.T, r *rig.Rig, u *rig.User, id string, random *rand.Rand)
	ends map[string]bool // phase and reason
}

var breakages = []breakage{
	{"nothing", func(*testing.T, *rig.Rig, *rig.User, string, *rand.Rand) {}, ends("COMPLETED ")},
	{"daemon killed", func(t *testing.T, r *rig.Rig, _ *rig.User, _ string, _ *rand.Rand) {
		r.Daemon.Kill(t)
		r.Daemon.Start(t)
	}, ends("COMPLETED ")},
	{"daemon stopped and started", func(t *testing.T, r *rig.Rig, _ *rig.User, _ string, _ *rand.Rand) {
		r.Daemon.Stop(t)
		r.Daemon.Start(t)
	}, ends("COMPLETED ")},
	{"daemon held", func(t *testing.T, r *rig.Rig, _ *rig.User, _ string, random *rand.Rand) {
		r.Daemon.Signal(t, syscall.SIGSTOP)
		<-time.After(time.Duration(random.IntN(2000)) * time.Millisecond)
		r.Daemon.Signal(t, syscall.SIGCONT)
	}, ends("COMPLETED ")},
	{"agent held", func(t *testing.T, r *rig.Rig, _ *rig.User, _ string, random *rand.Rand) {
		if pid := someAgent(r, random); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // it may be gone by now
			<-time.After(time.Duration(random.IntN(2000)) * time.Millisecond)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}, ends("COMPLETED ")},
	{"agent killed", func(_ *testing.T, r *rig.Rig, _ *rig.User, _ string, random *rand.Rand) {
		if pid := someAgent(r, random); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}, ends("COMPLETED ", "FAILED WORKER_LOST", "FAILED BOOTSTRAP_FAILED", "FAILED COMMAND_FAILED")},
	{"command killed", func(_ *testing.T, r *rig.Rig, _ *rig.User, _ string, random *rand.Rand) {
		if found := matching(r, "sleep"); len(found) > 0 {
			_ = syscall.Kill(found[random.IntN(len(found))].PID, syscall.SIGKILL)
		}
	}, ends("COMPLETED ", "FAILED COMMAND_FAILED")},
	{"cancelled", func(t *testing.T, _ *rig.Rig, u *rig.User, id string, _ *rand.Rand) {
		require.Zero(t, u.Run(t, "cancel", id).Code)
	}, ends("COMPLETED ", "CANCELLED USER_CANCELLED")},
	{"daemon killed, then cancelled", func(t *testing.T, r *rig.Rig, u *rig.User, id string, _ *rand.Rand) {
		r.Daemon.Kill(t)
		r.Daemon.Start(t)
		require.Zero(t, u.Run(t, "cancel", id).Code)
	}, ends("COMPLETED ", "CANCELLED USER_CANCELLED")},
}

func ends(of ...string) map[string]bool {
	m := map[string]bool{}
	for _, e := range of {
		m[e] = true
	}
	return m
}

func someAgent(r *rig.Rig, random *rand.Rand) int {
	found := agents(r)
	if len(found) == 0 {
		return 0
	}
	return found[random.IntN(len(found))].PID
}

func breakOnce(t *testing.T, r *rig.Rig, random *rand.Rand, round int) {
	t.Helper()
	b := breakages[random.IntN(len(breakages))]
	alice := r.Alice(t)
	ranks := 1 + random.IntN(4)
	id := alice.Submit(t, rig.Shell(ranks, `echo "began $RANK"; sleep 1; echo "end $RANK"`, "[signal]\ngrace = \"2s\""))
	<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond) // somewhere between queue and end
	b.do(t, r, alice, id, random)
	w := alice.AwaitEnd(t, id)
	require.Contains(t, b.ends, w.Phase()+" "+w.Text("reason"), "round %d, %s, %d ranks: %s", round, b.name, ranks, w)
	out := output(t, alice, id)
	for rank := range ranks {
		require.LessOrEqual(t, strings.Count(out, fmt.Sprintf("began %d\n", rank)), 1, "round %d, %s: rank %d ran twice:\n%s", round, b.name, rank, out)
		if w.Phase() == "COMPLETED" {
			require.Equal(t, 1, strings.Count(out, fmt.Sprintf("end %d\n", rank)), "round %d, %s: COMPLETED, but rank %d didn't end:\n%s", round, b.name, rank, out)
		}
	}
}
