package pbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

func TestFind(t *testing.T) {
	who := scheduler.Identity{User: "sci2", Name: "dsh4"}
	down := answer(t, "serverdown.qselect_-N_survive")
	off := answer(t, "nohistory-qselect-x")
	for name, c := range map[string]struct {
		qselect string
		want    []scheduler.JobID
		fails   bool
	}{
		"nothing":                       {qselect: "exit 0"},
		"finished ones":                 {qselect: `[ "$1" = -x ] || exit 0` + "\n" + answer(t, "qselect-x-N"), want: []scheduler.JobID{{ID: "208.pbshead"}, {ID: "210.pbshead"}}},
		"a live one, no history":        {qselect: `[ "$1" = -x ] || { echo 584.pbshead; exit 0; }` + "\n" + off, want: []scheduler.JobID{{ID: "584.pbshead"}}},
		"the same one in both":          {qselect: "echo 584.pbshead", want: []scheduler.JobID{{ID: "584.pbshead"}}},
		"server down":                   {qselect: down, fails: true},
		"server down at the first":      {qselect: `[ "$1" = -x ] && exit 0` + "\n" + down, fails: true},
		"server down at the second":     {qselect: `[ "$1" = -x ] || exit 0` + "\n" + down, fails: true},
		"text that is no id":            {qselect: "echo hello", fails: true},
		"the half of an answer, killed": {qselect: "echo 1.s; kill -9 $$", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := stub(t, map[string]string{"qselect": c.qselect})
			got, err := s.Find(t.Context(), who)
			if c.fails {
				require.ErrorIs(t, err, scheduler.ErrNoAnswer)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			assert.Contains(t, log(), "qselect -u sci2 -N dsh4\n")
			assert.Contains(t, log(), "qselect -x -u sci2 -N dsh4\n")
		})
	}
	s, _ := stub(t, map[string]string{"qselect": "exit 0"})
	_, err := s.Find(t.Context(), scheduler.Identity{User: "sci2", Name: "a b"})
	require.Error(t, err, "a name that qselect would take apart")
	_, err = s.Find(t.Context(), scheduler.Identity{User: "sci2", Name: strings.Repeat("a", 231)})
	require.Error(t, err, "a name that qsub takes for none")
	_, err = s.Find(t.Context(), scheduler.Identity{User: "sci2", Name: strings.Repeat("a", 230)})
	require.NoError(t, err)
}

func observed(id, state string) string {
	return fmt.Sprintf("Job Id: %s\\n    Job_Name = x\\n    Job_Owner = ann@head\\n    job_state = %s\\n    substate = 42\\n    Variable_List = A=b\\n\\n", id, state)
}

func TestCase23OneQueryThreeAnswers(t *testing.T) {
	s, log := stub(t, map[string]string{"qstat": `printf '` + observed("1.s", "R") + observed("3.s", "Q") + `'
echo 'qstat: Unknown Job Id 2.s' >&2
exit 153`})
	a, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}, {ID: "2.s"}, {ID: "3"}, {ID: "4.s"}, {ID: "workq"}, {ID: "-x"}})
	require.NoError(t, err)
	assert.Equal(t, scheduler.Granted, a.Known[scheduler.JobID{ID: "1.s"}].Phase)
	assert.Equal(t, scheduler.Pending, a.Known[scheduler.JobID{ID: "3"}].Phase, "Case37: an id without its server")
	assert.Len(t, a.Known, 2)
	assert.Len(t, a.Unanswered, 3)
	for _, id := range []string{"4.s", "workq", "-x"} {
		assert.ErrorIs(t, a.Unanswered[scheduler.JobID{ID: id}], scheduler.ErrNoAnswer, id)
	}
	assert.Equal(t, "qstat --version\nqstat -x -f 1.s 2.s 3 4.s\n", log(), "Case23: one query, for our ids")
}

func TestCase24NoAnswerIsNoState(t *testing.T) {
	for name, qstat := range map[string]string{
		"server down":       answer(t, "serverdown.qstat_-x_-f_-F_json_537.pbshead"),
		"connection lost":   answer(t, "blackhole.qstat_-f_-F_json"),
		"killed":            "printf '" + observed("1.s", "R") + "'; kill -9 $$",
		"shell can't start": "exit 127",
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := stub(t, map[string]string{"qstat": qstat})
			_, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}, {ID: "2.s"}})
			require.ErrorIs(t, err, scheduler.ErrNoAnswer)
		})
	}
}

func TestCase25EmptyAnswerIsNotAbsence(t *testing.T) {
	for name, qstat := range map[string]string{
		"nothing at all":     "exit 0",
		"hidden from us":     answer(t, "eve-qstat-qoj-false"),
		"half a record":      "printf 'Job Id: 1.s\\n    Job_Name = x\\n'",
		"a record of others": "printf '" + observed("11.s", "F") + "'",
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := stub(t, map[string]string{"qstat": qstat})
			a, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
			require.NoError(t, err)
			assert.Empty(t, a.Known)
			assert.Len(t, a.Unanswered, 1)
		})
	}
}

func TestCase27AHangingQuestionIsCutShort(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": `[ "$1" = --version ] && { echo "pbs_version = 23.06.06"; exit; }; exec sleep 60`})
	_, err := s.supported(t.Context())
	require.NoError(t, err)
	s.limits.ask = 50 * time.Millisecond
	_, err = s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
	require.ErrorIs(t, err, scheduler.ErrNoAnswer)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestHistoryOff(t *testing.T) {
	// With -x nothing is said of a live job; without it everything.
	s, log := stub(t, map[string]string{"qstat": `case "$1" in
-x) echo 'qstat: PBS is not configured to maintain job history 1.s' >&2; exit 0 ;;
*) printf '` + observed("1.s", "R") + `'; echo 'qstat: Unknown Job Id 2.s' >&2; exit 153 ;;
esac`})
	for range 2 {
		a, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}, {ID: "2.s"}})
		require.NoError(t, err)
		assert.Equal(t, scheduler.Granted, a.Known[scheduler.JobID{ID: "1.s"}].Phase)
		assert.Empty(t, a.Unanswered)
	}
	assert.Equal(t, 1, strings.Count(log(), "qstat -x"), "asked the useless way once")
}

func TestHistorySwitchedOnLater(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": `case "$1" in
-x) printf '` + observed("1.s", "F") + `' ;;
*) echo 'qstat: 1.s Job has finished, use -x or -H to obtain historical job information' >&2; exit 35 ;;
esac`})
	s.setHistoryOff(true)
	a, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
	require.NoError(t, err)
	assert.True(t, a.Known[scheduler.JobID{ID: "1.s"}].Phase.Terminal())
}

func TestARecordForgedInAnotherJobsVariables(t *testing.T) {
	forged := "X=a\\n\\nJob Id: 1.s\\n    Job_Name = x\\n    Job_Owner = ann@head\\n    job_state = F\\n    substate = 92\\n    Exit_status = 0\\n"
	eve := "Job Id: 2.s\\n    Job_Name = e\\n    Job_Owner = eve@head\\n    job_state = R\\n    Variable_List = " + forged + "\\n\\n"
	t.Run("beside the true one", func(t *testing.T) {
		s, _ := stub(t, map[string]string{"qstat": `[ $# -eq 3 ] || printf '` + eve + `'
printf '` + observed("1.s", "R") + `'`})
		a, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "2.s"}, {ID: "1.s"}})
		require.NoError(t, err)
		assert.Equal(t, scheduler.Granted, a.Known[scheduler.JobID{ID: "1.s"}].Phase)
	})
	t.Run("of a job the server doesn't know", func(t *testing.T) {
		s, _ := stub(t, map[string]string{"qstat": `[ $# -eq 3 ] || printf '` + eve + `'
echo 'qstat: Unknown Job Id 1.s' >&2; exit 153`})
		a, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "2.s"}, {ID: "1.s"}})
		require.NoError(t, err)
		assert.NotContains(t, a.Known, scheduler.JobID{ID: "1.s"})
		assert.Empty(t, a.Unanswered)
	})
}

func TestCase29ManyIDsGoInChunks(t *testing.T) {
	s, log := stub(t, map[string]string{"qstat": `shift 2; for id; do printf 'Job Id: %s\n    Job_Name = x\n    job_state = Q\n\n' "$id"; done`})
	var ids []scheduler.JobID
	for i := range maxIDs + 3 {
		ids = append(ids, scheduler.JobID{ID: itoa(i) + ".s"})
	}
	a, err := s.Observe(t.Context(), ids)
	require.NoError(t, err)
	assert.Len(t, a.Known, len(ids))
	assert.Equal(t, 2, strings.Count(log(), "qstat -x"))
}

func TestCase37IDsAreOpaque(t *testing.T) {
	for _, pair := range [][2]string{{"123", "123.srv"}, {"123.srv", "123.srv.example.org"}, {"123[].srv", "123[]"}, {"123[7].srv.dom", "123[7].srv"}} {
		assert.True(t, sameJob(pair[0], pair[1]), "%v", pair)
	}
	for _, pair := range [][2]string{{"123", "1234"}, {"123.a", "123.b"}, {"123[]", "123"}, {"123[1].s", "123[2].s"}, {"123.srv", "123.srv2"}} {
		assert.False(t, sameJob(pair[0], pair[1]), "%v", pair)
	}
	for id, ok := range map[string]bool{"1": true, "1.s": true, "1[].s": true, "1[3].s.d": true, "abc": false, "": false, "-f": false, "1 2": false, "1.s;x": false, "1.": false} {
		assert.Equal(t, ok, isID(id), id)
	}
}

func TestNothingIsAskedForNothing(t *testing.T) {
	s, log := stub(t, map[string]string{})
	a, err := s.Observe(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, a.Known)
	assert.Empty(t, log())
}

func TestCallersEndIsNotAnAnswer(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": "exit 0"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Observe(ctx, []scheduler.JobID{{ID: "1.s"}})
	require.Error(t, err)
	assert.True(t, errors.Is(err, scheduler.ErrNoAnswer))
}

// Case 35: the JSON form of jobs can be broken by a variable of anybody's, and is never asked for.
func TestCase35JobsAreReadFromTheTextForm(t *testing.T) {
	s, log := stub(t, map[string]string{"qstat": `printf 'Job Id: 1.s\n    Job_Name = x\n    job_state = R\n    Variable_List = A=back\\,B=007,C="q\n\n'`})
	a, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
	require.NoError(t, err)
	assert.Equal(t, scheduler.Granted, a.Known[scheduler.JobID{ID: "1.s"}].Phase)
	assert.NotContains(t, log(), "json")
}
