package gang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTransitions(t *testing.T) {
	failed := Exit{Code: 3}
	termed := Exit{Signal: 15, By: ByScheduler}
	tests := []struct {
		name   string
		gang   *Gang
		do     func(*Gang) []Event
		state  State
		events []Kind
		cause  Cause // "" while nothing is decided
		code   int
	}{
		{"first rank", New(2, limits), join(0), Forming, nil, "", 0},
		{"last rank", joined(2, 0), join(1), Ready, []Kind{BecameReady}, "", 0},
		{"rank gone before release", joined(2, 0), gone(0, 1), Forming, nil, "", 0},
		{"rank gone when ready", joined(2, 0, 1), gone(0, 1), Forming, nil, "", 0},
		{"released", joined(2, 0, 1), func(g *Gang) []Event { g.Release(at(1)); return nil }, Released, nil, "", 0},
		{"release of a forming gang", joined(2, 0), func(g *Gang) []Event { g.Release(at(1)); return nil }, Forming, nil, "", 0},
		{"timeout not yet", joined(2, 0), tick(599), Forming, nil, "", 0},
		{"timeout", heardAt(joined(2, 0), 0, 590), tick(600), Stopping, []Kind{StopRanks}, RegistrationTimeout, 1},
		{"no timeout before the first", New(2, limits), tick(100000), Forming, nil, "", 0},
		{"timeout of a gang that nobody is left of", step(joined(2, 0), gone(0, 5)), tick(600), Done, []Kind{StopRanks, Finished}, RegistrationTimeout, 1},
		{"first exit of zero", released(2), exit(0, Exit{}), Released, nil, "", 0},
		{"last exit of zero", step(released(2), exit(0, Exit{})), exit(1, Exit{}), Done, []Kind{Finished}, Completed, 0},
		{"a command fails", released(2), exit(1, failed), Stopping, []Kind{StopRanks}, CommandFailed, 3},
		{"a command dies of a signal", released(2), exit(1, Exit{Signal: 9}), Stopping, []Kind{StopRanks}, CommandFailed, 137},
		{"all ended after a failure", step(released(2), exit(1, failed)), exit(0, Exit{Signal: 15, By: ByOrder}), Done, []Kind{Finished}, CommandFailed, 3},
		{"a second failure decides nothing", step(released(3), exit(1, failed)), exit(0, Exit{Code: 9}), Stopping, nil, CommandFailed, 3},
		{"a cause of a later version with a code", released(2), exit(0, Exit{Code: 4, By: "meteor"}), Stopping, []Kind{StopRanks}, CommandFailed, 4},
		{"walltime", released(2), exit(0, Exit{Signal: 15, By: ByWalltime}), Stopping, []Kind{StopRanks}, Walltime, 143},
		{"walltime, and a clean end", released(2), exit(0, Exit{By: ByWalltime}), Stopping, []Kind{StopRanks}, Walltime, 143},
		{"the scheduler's term", released(2), exit(0, termed), Stopping, nil, "", 0},
		{"the scheduler's term to all", step(released(2), exit(0, termed)), exit(1, termed), Done, []Kind{Finished}, Undecided, 143},
		{"the scheduler's term before release", joined(2, 0, 1), exit(0, termed), Stopping, nil, "", 0},
		{"the scheduler's term to the only one that came", joined(2, 0), exit(0, termed), Done, []Kind{Finished}, Undecided, 143},
		{"an end before release", joined(2, 0), exit(0, Exit{}), Done, []Kind{StopRanks, Finished}, CommandFailed, 1},
		{"an end after an order that was forgotten", released(2), exit(0, Exit{Signal: 15, By: ByOrder}), Stopping, nil, "", 0},
		{"stopped", released(2), stop(1), Stopping, []Kind{StopRanks}, Stopped, 20},
		{"stopped before anybody came", New(2, limits), stop(1), Done, []Kind{StopRanks, Finished}, Stopped, 20},
		{"stopped while forming", joined(2, 0), stop(1), Stopping, []Kind{StopRanks}, Stopped, 20},
		{"stopped twice", step(released(2), stop(1)), stop(2), Stopping, nil, Stopped, 20},
		{"stopped when over", step(released(1), exit(0, Exit{})), stop(2), Done, nil, Completed, 0},
		{"drained", step(joined(2, 0), stop(1)), gone(0, 2), Done, []Kind{Finished}, Stopped, 20},
		{"not drained", step(released(1), stop(1)), tick(60), Stopping, nil, Stopped, 20},
		{"given up after draining", step(released(1), stop(1)), tick(61), Done, []Kind{LoseRank, Finished}, Stopped, 20},
		{"term to some: the rest is told after a while", step(released(2), exit(0, termed)), tick(60), Stopping, []Kind{StopRanks}, "", 0},
		{"silent for too long", heardAt(released(2), 1, 10), tick(300), Stopping, []Kind{LoseRank, StopRanks}, RankLost, 1},
		{"all silent for too long", released(2), tick(300), Done, []Kind{LoseRank, StopRanks, LoseRank, Finished}, RankLost, 1},
		{"silent, and never anything else", quiet(1), tick(100000), Released, nil, "", 0},
		{"silent rank that was heard", heardAt(released(1), 0, 299), tick(300), Released, nil, "", 0},
		{"dead connection", step(heardAt(released(2), 1, 800), gone(0, 1)), tick(900), Released, nil, "", 0},
		{"dead connection not resumed", step(heardAt(released(2), 1, 800), gone(0, 1)), tick(901), Stopping, []Kind{LoseRank, StopRanks}, RankLost, 1},
		{"gone after its end", step(released(2), exit(0, Exit{})), gone(0, 5), Released, nil, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events := tt.do(tt.gang)
			assert.Equal(t, tt.state, tt.gang.State())
			assert.Equal(t, tt.events, kinds(events))
			o := tt.gang.Outcome()
			if tt.cause == "" {
				assert.Nil(t, o)
				return
			}
			require.NotNil(t, o)
			assert.Equal(t, tt.cause, o.Cause)
			assert.Equal(t, tt.code, o.Code)
		})
	}
}

func join(r int) func(*Gang) []Event {
	return func(g *Gang) []Event { _, e := g.Join(r, member(r), false, at(0)); return e }
}

func gone(r, when int) func(*Gang) []Event {
	return func(g *Gang) []Event { return g.Gone(r, at(when)) }
}

func tick(when int) func(*Gang) []Event { return func(g *Gang) []Event { return g.Tick(at(when)) } }

func exit(r int, e Exit) func(*Gang) []Event {
	return func(g *Gang) []Event { return g.Exited(r, e, at(0)) }
}

func stop(when int) func(*Gang) []Event {
	return func(g *Gang) []Event { return g.Stop(Outcome{Cause: Stopped, Code: 20, Rank: -1}, at(when)) }
}

func step(g *Gang, do func(*Gang) []Event) *Gang { do(g); return g }

// quiet is a released gang of ranks that send no heartbeats.
func quiet(size int) *Gang {
	g := New(size, limits)
	for r := range size {
		g.Join(r, Member{Quiet: true}, false, at(0))
	}
	g.Release(at(0))
	return g
}

func heardAt(g *Gang, r, when int) *Gang { g.Heard(r, at(when)); return g }

// Case 51: distinct ranks count, registrations don't.
func TestCase51SecondRegistrationCountsOnce(t *testing.T) {
	g := joined(2, 0)
	ok, events := g.Join(0, member(0), false, at(1))
	assert.False(t, ok)
	assert.Empty(t, events)
	assert.Equal(t, 1, g.Live())

	ok, events = g.Join(0, member(0), true, at(1))
	assert.True(t, ok, "a resumed rank takes its own place")
	assert.Empty(t, events)
	assert.Equal(t, 1, g.Live())
	assert.Equal(t, Forming, g.State())
	assert.Equal(t, []int{1}, g.Missing())
}

// Case 49: who is missing is said while waiting, and only they are blamed.
func TestCase49MissingRanksAreNamed(t *testing.T) {
	g := joined(4, 0, 1, 3)
	hostOf := func(r int) string { return [...]string{"n1", "n2", "n3", "n4"}[r] }
	assert.Equal(t, "3 of 4 ranks; missing 2 (n3)", g.Text(at(1), hostOf))
	g.Tick(at(600))
	require.NotNil(t, g.Outcome())
	assert.Equal(t, []int{2}, g.Outcome().Missing)
	assert.Equal(t, 2, g.Outcome().Rank)
	// A rank that doesn't drain is lost, and not to blame.
	g.Tick(at(660))
	assert.Equal(t, Done, g.State())
	assert.Equal(t, []int{2}, g.Outcome().Missing)
}

// Who came and is gone again, for the launcher ended it as another never came, isn't to blame.
func TestCase49WhoCameIsNotBlamed(t *testing.T) {
	g := joined(3, 0, 2)
	for _, r := range []int{0, 2} {
		g.Gone(r, at(5))
	}
	g.Tick(at(600))
	require.NotNil(t, g.Outcome())
	assert.Equal(t, []int{1}, g.Outcome().Missing)
	assert.False(t, g.Outcome().Gone)
}

// Nobody stayed away, and nobody is there: all are named, and how it was.
func TestRanksThatCameAndWent(t *testing.T) {
	g := joined(3, 0, 2)
	for _, r := range []int{0, 2} {
		g.Gone(r, at(5))
	}
	g.Join(1, Member{Host: "n2"}, false, at(6))
	g.Tick(at(600))
	require.NotNil(t, g.Outcome())
	assert.Equal(t, []int{0, 2}, g.Outcome().Missing)
	assert.True(t, g.Outcome().Gone)
}

// Case 50: ranks that come early wait, for as long as nobody else has to come.
func TestCase50EarlyRankWaits(t *testing.T) {
	g := joined(1, 0)
	g.Tick(at(100000))
	assert.Equal(t, Ready, g.State())
	assert.Nil(t, g.Outcome())
}

// Case 52: the clock starts with the first registration.
func TestCase52ClockStartsAtFirstRegistration(t *testing.T) {
	g := New(2, limits)
	assert.True(t, g.Next().IsZero())
	g.Tick(at(3600))
	g.Join(1, member(1), false, at(7200))
	assert.Equal(t, at(7200).Add(limits.Timeout), g.Next())
	g.Gone(1, at(7300))
	g.Join(1, member(1), false, at(7400))
	assert.Equal(t, at(7200).Add(limits.Timeout), g.Next(), "a rank that comes and goes doesn't restart it")
}

func TestSuspendedGangLosesNobody(t *testing.T) {
	g := released(2)
	g.Gone(1, at(10))
	g.Suspended(true, at(20))
	assert.Empty(t, g.Tick(at(1000000)))
	assert.Empty(t, g.Silent(at(1000000)))
	assert.True(t, g.Next().IsZero())
	g.Suspended(false, at(1000000))
	assert.Empty(t, g.Tick(at(1000000+299)), "its clocks start afresh")
	assert.Equal(t, []Kind{LoseRank, StopRanks}, kinds(g.Tick(at(1000000+300))))
	assert.Equal(t, []int{0}, g.Outcome().Missing)
}

func TestTimeAwayCountsForNoClock(t *testing.T) {
	g := released(2)
	g.Heard(1, at(100))
	g.Away(1000*time.Second, at(1050)) // nobody watched from 50 on
	assert.Equal(t, at(1000).Add(limits.LostAfter), g.Next(), "rank 0 was heard at 0")
	assert.Equal(t, []Kind{LoseRank, StopRanks}, kinds(g.Tick(at(1000).Add(limits.LostAfter))))
	assert.Equal(t, []int{0}, g.Outcome().Missing)
	assert.Empty(t, kinds(g.Tick(at(1050).Add(limits.LostAfter-time.Second))), "rank 1 was heard in between: its clock begins at 1050")

	g = New(2, limits)
	g.Join(0, member(0), false, at(10))
	g.Away(time.Hour, at(3700))
	assert.Equal(t, at(3610).Add(limits.Timeout), g.Next(), "the gang's time to form is longer by as much")
	g.Gone(0, at(3800))
	g.Away(time.Hour, at(7500))
	g.Join(0, member(0), false, at(7500))
	assert.Equal(t, at(7210).Add(limits.Timeout), g.Next())

	g = New(2, limits)
	g.Away(time.Hour, at(3700))
	assert.True(t, g.Next().IsZero(), "nothing had begun")
}

func TestSilentIsShownBeforeItIsLost(t *testing.T) {
	g := released(3)
	g.Heard(0, at(30))
	g.Heard(2, at(30))
	assert.Empty(t, g.Silent(at(44)))
	assert.Equal(t, []int{1}, g.Silent(at(45)))
	assert.Equal(t, "3 of 3 ranks; silent 1 (b)", g.Text(at(45), func(r int) string { return g.Member(r).Host }))
}

func TestLateRanks(t *testing.T) {
	t.Run("a lost rank stays out", func(t *testing.T) {
		g := heardAt(released(2), 1, 800)
		g.Gone(0, at(1))
		g.Tick(at(901))
		ok, _ := g.Join(0, member(0), true, at(902))
		assert.False(t, ok)
		assert.True(t, g.IsLost(0))
	})
	t.Run("a first registration after release", func(t *testing.T) {
		g := step(joined(2, 0), stop(1))
		ok, _ := g.Join(1, member(1), false, at(2))
		assert.False(t, ok)
	})
	t.Run("a gang that is over takes a rank back", func(t *testing.T) {
		g := step(released(1), exit(0, Exit{}))
		g.Gone(0, at(1))
		ok, events := g.Join(0, member(0), true, at(2))
		assert.True(t, ok)
		assert.Empty(t, events)
		assert.Equal(t, Done, g.State())
	})
	t.Run("a report after the end is counted alone", func(t *testing.T) {
		g := step(joined(2, 0), stop(1))
		g.Gone(0, at(2))
		require.Equal(t, Done, g.State())
		assert.Empty(t, g.Exited(0, Exit{Code: 9}, at(3)))
		assert.True(t, g.HasExited(0))
		assert.Equal(t, Stopped, g.Outcome().Cause)
	})
}

func TestRestore(t *testing.T) {
	members := []Member{member(0), member(1), member(2)}
	t.Run("nobody is connected and the clocks start afresh", func(t *testing.T) {
		g, events := Restore(members, nil, nil, limits, at(5000))
		assert.Empty(t, events)
		assert.Equal(t, Released, g.State())
		assert.Equal(t, 0, g.Live())
		assert.Equal(t, at(5000).Add(limits.OrphanTTL), g.Next())
		assert.Equal(t, "c", g.Member(2).Host)
		assert.Equal(t, at(0).Sub(epoch0), time.Duration(0))
	})
	t.Run("exits that were all stored", func(t *testing.T) {
		g, events := Restore(members, map[int]Exit{0: {}, 1: {}, 2: {}, 9: {Code: 1}}, nil, limits, at(0))
		assert.Equal(t, []Kind{Finished}, kinds(events))
		assert.Equal(t, Completed, g.Outcome().Cause)
	})
	t.Run("what was decided stays", func(t *testing.T) {
		for range 50 { // whatever the order of the map
			o := &Outcome{Cause: CommandFailed, Code: 5, Rank: 2, Host: "c"}
			g, _ := Restore(members, map[int]Exit{0: {Code: 3}, 2: {Code: 5}}, o, limits, at(0))
			require.Equal(t, 5, g.Outcome().Code)
		}
	})
	t.Run("undecided exits come out the same every time", func(t *testing.T) {
		for range 50 {
			g, _ := Restore(members, map[int]Exit{1: {Code: 4}, 2: {Code: 5}, 0: {Code: 3}}, nil, limits, at(0))
			require.Equal(t, 3, g.Outcome().Code)
		}
	})
	t.Run("lost ranks are not waited for", func(t *testing.T) {
		o := &Outcome{Cause: RankLost, Code: 1, Rank: 1, Missing: []int{1, 77}}
		g, events := Restore(members, map[int]Exit{0: {Code: 143, By: ByOrder}, 2: {Code: 143, By: ByOrder}}, o, limits, at(0))
		assert.Equal(t, []Kind{StopRanks, Finished}, kinds(events))
		assert.Equal(t, Done, g.State())
	})
}

func TestList(t *testing.T) {
	many := make([]int, 40)
	for i := range many {
		many[i] = 2 * i
	}
	hosts := func(r int) string { return [...]string{"n1", "n1", "n2", "n2", ""}[r] }
	for _, tt := range []struct {
		ranks  []int
		hostOf func(int) string
		want   string
	}{
		{nil, nil, ""},
		{[]int{2}, nil, "2"},
		{[]int{0, 1, 2, 5, 7, 8}, nil, "0-2, 5, 7-8"},
		{[]int{0, 1, 2, 4}, hosts, "0-1 (n1), 2 (n2), 4"},
		{many, nil, "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 and 24 more"},
	} {
		assert.Equal(t, tt.want, List(tt.ranks, tt.hostOf))
	}
}
