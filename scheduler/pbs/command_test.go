package pbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openai4s/hpc/scheduler"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func itoa(n int) string { return strconv.Itoa(n) }

const goodVersion = `if [ "$1" = --version ]; then echo "pbs_version = 23.06.06"; exit 0; fi`

// stub returns a System whose commands are the given shell texts; qstat answers --version unless it says otherwise.
// Each call appends its name and arguments to the returned log.
func stub(t *testing.T, commands map[string]string) (*System, func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	paths := map[string]string{}
	if _, own := commands["qstat"]; !own {
		commands["qstat"] = "exit 1"
	}
	for name, text := range commands {
		path := filepath.Join(dir, name)
		if name == "qstat" && !strings.Contains(text, "--version") {
			text = goodVersion + "\n" + text
		}
		body := "#!/bin/sh\nprintf '%s\\n' \"" + name + " $*\" >>" + log + "\n" + text + "\n"
		require.NoError(t, os.WriteFile(path, []byte(body), 0o700))
		paths[name] = path
	}
	return New(paths), func() string {
		b, _ := os.ReadFile(log)
		return string(b)
	}
}

// answer is shell text that repeats a recorded answer: its output, its errors and its exit code.
func answer(t *testing.T, name string) string {
	t.Helper()
	base, err := filepath.Abs(filepath.Join("testdata", "answers", name))
	require.NoError(t, err)
	return fmt.Sprintf("cat %s.out 2>/dev/null\ncat %s.err >&2 2>/dev/null\nexit %d", base, base, recordedCode(t, base))
}

// recordedCode is the exit code in the second line of a record's .cmd file.
func recordedCode(t *testing.T, base string) int {
	t.Helper()
	cmd, err := os.ReadFile(base + ".cmd")
	require.NoError(t, err)
	lines := strings.Split(string(cmd), "\n")
	code, err := strconv.Atoi(strings.TrimPrefix(strings.Fields(lines[1])[0], "rc="))
	require.NoError(t, err)
	return code
}

func submission() scheduler.Submission {
	return scheduler.Submission{Name: "o-x-0123456789ab", Args: []string{"-f", "-N", "o-x-0123456789ab"}, Script: []byte("#!/bin/sh\n")}
}

func TestRecordedRefusals(t *testing.T) {
	for name, w := range map[string]struct {
		reason scheduler.Reason
		later  bool
		text   string
	}{
		"err-unknown-queue-f":              {reason: scheduler.BackendRejected, text: "Unknown queue"},
		"err-illegal-resource-in-select-f": {reason: scheduler.BackendRejected, text: "nosuch"},
		"err-illegal-attr-W-f":             {reason: scheduler.BackendRejected, text: "15002"},
		"err-bad-walltime":                 {reason: scheduler.BackendRejected, text: "walltime"},
		"err-bad-mem":                      {reason: scheduler.BackendRejected},
		"err-mixed":                        {reason: scheduler.BackendRejected, text: "ncpus"},
		"err-select-nodes":                 {reason: scheduler.BackendRejected, text: "nodes"},
		"err-bad-option":                   {reason: scheduler.BackendRejected, text: "invalid option"},
		"err-queue-acl":                    {reason: scheduler.AuthorizationDenied, text: "Unauthorized"},
		"err-queue-disabled":               {reason: scheduler.BackendRejected, later: true},
		"err-max-queued":                   {reason: scheduler.PolicyRejected, later: true, text: "per-user limit"},
		"err-walltime-over-max":            {reason: scheduler.PolicyRejected},
		"err-P":                            {reason: scheduler.BackendRejected, text: "project"},
		"err-bad-server":                   {reason: scheduler.BackendUnavailable, later: true, text: "nosuchhost"},
		"hook-rejectme-f":                  {reason: scheduler.PolicyRejected, text: "project is missing (use -P)"},
		"hook-rejectml-f":                  {reason: scheduler.PolicyRejected, text: "line two: ünï \"quoted\""},
		"hook-crashme-f":                   {reason: scheduler.PolicyRejected, text: "inform Admin"},
		"serverdown.qsub_-f_jobs_ok.sh":    {reason: scheduler.BackendUnavailable, later: true},
		"blackhole.qsub_-f_jobs_ok.sh":     {reason: scheduler.BackendUnavailable, later: true, text: "timed out"},
		"qsub-pbs_iff-not-setuid":          {reason: scheduler.BackendUnavailable, later: true, text: "authenticate"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := stub(t, map[string]string{"qsub": "cat >/dev/null\n" + answer(t, name)})
			r, err := s.Submit(t.Context(), submission())
			require.NoError(t, err)
			assert.Equal(t, scheduler.Rejected, r.Outcome)
			assert.Equal(t, w.reason, r.Reason)
			assert.Equal(t, w.later, r.Later)
			assert.Contains(t, r.Text, w.text)
			assert.True(t, r.Job.IsZero())
			if w.reason != scheduler.BackendRejected || r.Hint != "" {
				assert.NotEmpty(t, r.Hint)
			}
		})
	}
}

func TestSubmitReceipts(t *testing.T) {
	for name, c := range map[string]struct {
		qsub    string
		outcome scheduler.Outcome
		id      string
		text    string
	}{
		"a job":                                     {qsub: "echo 12.pbshead", outcome: scheduler.Created, id: "12.pbshead"},
		"Case02 stderr chatter beside a good id":    {qsub: "echo 'qsub: slow today' >&2; echo 12.pbshead", outcome: scheduler.Created, id: "12.pbshead", text: "slow today"},
		"Case07 banner before the id":               {qsub: "echo 'Welcome to PBS 3'; echo 'charging account 12345'; echo 12.pbshead", outcome: scheduler.Created, id: "12.pbshead"},
		"Case07 two ids":                            {qsub: "echo 11.pbshead; echo 12.pbshead", outcome: scheduler.Unknown},
		"Case07 an id inside a line":                {qsub: "echo 'Your job 12.pbshead was queued'", outcome: scheduler.Unknown, text: "Your job"},
		"Case07 a bare number":                      {qsub: "echo 12345", outcome: scheduler.Unknown},
		"Case04 nothing printed":                    {qsub: "exit 0", outcome: scheduler.Unknown, text: "nothing was printed"},
		"an id and an error":                        {qsub: "echo 12.pbshead; exit 170", outcome: scheduler.Unknown},
		"an exit code nobody knows":                 {qsub: "echo 'qsub: Unknown error 15031' >&2; exit 183", outcome: scheduler.Unknown, text: "exit code 183"},
		"killed by a signal":                        {qsub: "kill -9 $$", outcome: scheduler.Unknown},
		"killed by a signal after the id":           {qsub: "echo 12.pbshead; kill -9 $$", outcome: scheduler.Created, id: "12.pbshead"},
		"Case37 an array's id with a domain":        {qsub: "echo '12[].pbs.example.org'", outcome: scheduler.Created, id: "12[].pbs.example.org"},
		"control characters are not shown":          {qsub: `printf 'qsub: \033[31mno\n' >&2; exit 32`, outcome: scheduler.Rejected, text: "\uFFFD[31mno"},
		"a descriptor held by a child left behind":  {qsub: "sleep 30 & echo 12.pbshead", outcome: scheduler.Created, id: "12.pbshead"},
		"162 without a word of a failed connection": {qsub: "echo 'qsub: Error (15010) submitting job' >&2; exit 162", outcome: scheduler.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := stub(t, map[string]string{"qsub": "cat >/dev/null\n" + c.qsub})
			r, err := s.Submit(t.Context(), submission())
			require.NoError(t, err)
			assert.Equal(t, c.outcome, r.Outcome)
			assert.Equal(t, c.id, r.Job.ID)
			assert.Contains(t, r.Text, c.text)
			if c.outcome == scheduler.Unknown {
				assert.Equal(t, scheduler.BackendSubmissionUnknown, r.Reason)
				assert.NotEmpty(t, r.Text)
			}
		})
	}
}

func TestCase05HangingSubmitIsUnknown(t *testing.T) {
	s, _ := stub(t, map[string]string{"qsub": "exec sleep 60"})
	s.limits.submit = 50 * time.Millisecond
	r, err := s.Submit(t.Context(), submission())
	require.NoError(t, err)
	assert.Equal(t, scheduler.Unknown, r.Outcome)
	assert.Equal(t, scheduler.BackendSubmissionUnknown, r.Reason)
	assert.Contains(t, r.Text, "stopped after")
}

func TestSubmitHandsOverScriptAndArguments(t *testing.T) {
	s, log := stub(t, map[string]string{"qsub": `test "$(cat)" = '#!/bin/sh' && echo 1.s`})
	r, err := s.Submit(t.Context(), submission())
	require.NoError(t, err)
	assert.Equal(t, scheduler.Created, r.Outcome)
	assert.Contains(t, log(), "qsub -f -N o-x-0123456789ab\n")
}

func TestSubmitWithoutTheCommandIsAnError(t *testing.T) {
	s, _ := stub(t, map[string]string{"qsub": "true"})
	s.run.paths["qsub"] = filepath.Join(t.TempDir(), "none")
	_, err := s.Submit(t.Context(), submission())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCase13SurroundingJobDoesNotLeak(t *testing.T) {
	for k, v := range map[string]string{
		"PBS_JOBID": "5.s", "PBS_NODEFILE": "/x", "PBS_DPREFIX": "#X", "PMI_RANK": "1", "PMIX_RANK": "1", "SLURM_JOB_ID": "3",
		"LANG": "de_DE.UTF-8", "LC_MESSAGES": "ja_JP.UTF-8", "TZ": "Asia/Tokyo", "PBS_CONF_FILE": "/etc/own.conf", "PBS_SERVER": "head2",
	} {
		t.Setenv(k, v)
	}
	s, _ := stub(t, map[string]string{"qsub": "cat >/dev/null; env | sort >&2; exit 2"})
	r, err := s.Submit(t.Context(), submission())
	require.NoError(t, err)
	for _, gone := range []string{"PBS_JOBID", "PBS_NODEFILE", "PBS_DPREFIX", "PMI", "SLURM_", "LANG=", "LC_MESSAGES", "Tokyo"} {
		assert.NotContains(t, r.Text, gone)
	}
	for _, stays := range []string{"PBS_CONF_FILE=/etc/own.conf", "PBS_SERVER=head2", "LC_ALL=C", "TZ=UTC", "PATH="} {
		assert.Contains(t, r.Text, stays)
	}
}

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
}

func observed(id, state string) string {
	return fmt.Sprintf("Job Id: %s\\n    Job_Name = x\\n    Job_Owner = ann@head\\n    job_state = %s\\n    substate = 42\\n    Variable_List = A=b\\n\\n", id, state)
}

func TestObserveThreeAnswers(t *testing.T) {
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

func TestCase65CancelTakesTheJobMeant(t *testing.T) {
	ann := scheduler.Identity{User: "ann", Name: "x"}
	show := func(state string) string { return "printf '" + observed("1.s", state) + "'" }
	for name, c := range map[string]struct {
		qstat, qdel string
		who         scheduler.Identity
		err         error
		calls       string
	}{
		"ours":                       {qstat: show("R"), qdel: "exit 0", who: ann, calls: "qdel 1.s\n"},
		"another's":                  {qstat: show("R"), qdel: "exit 0", who: scheduler.Identity{User: "bob", Name: "x"}, err: scheduler.ErrNotOurs},
		"another name":               {qstat: show("R"), qdel: "exit 0", who: scheduler.Identity{User: "ann", Name: "y"}, err: scheduler.ErrNotOurs},
		"over":                       {qstat: show("F"), qdel: "exit 0", who: ann, err: scheduler.ErrNoSuchJob},
		"unknown":                    {qstat: "echo 'qstat: Unknown Job Id 1.s' >&2; exit 153", qdel: "exit 0", who: ann, err: scheduler.ErrNoSuchJob},
		"hidden":                     {qstat: "exit 0", qdel: "exit 0", who: ann, err: scheduler.ErrNoAnswer},
		"server down at qstat":       {qstat: answer(t, "serverdown.qstat_-x_-f_-F_json_537.pbshead"), qdel: "exit 0", who: ann, err: scheduler.ErrNoAnswer},
		"server down at qdel":        {qstat: show("R"), qdel: answer(t, "serverdown.qdel_537.pbshead"), who: ann, err: scheduler.ErrNoAnswer, calls: "qdel 1.s\n"},
		"finished in between":        {qstat: show("R"), qdel: answer(t, "qdel-finished"), who: ann, err: scheduler.ErrNoSuchJob, calls: "qdel 1.s\n"},
		"purged in between":          {qstat: show("R"), qdel: answer(t, "qdel-unknown"), who: ann, err: scheduler.ErrNoSuchJob, calls: "qdel 1.s\n"},
		"not allowed":                {qstat: show("R"), qdel: answer(t, "qdel-other"), who: ann, err: scheduler.ErrNotOurs, calls: "qdel 1.s\n"},
		"the first node is gone":     {qstat: show("R"), qdel: `[ "$1" = -W ] && exit 0` + "\n" + answer(t, "qdel-while-ms-down"), who: ann, calls: "qdel 1.s\nqdel -W force 1.s\n"},
		"ending already":             {qstat: show("E"), qdel: "exit 168", who: ann, calls: "qdel 1.s\n"},
		"force isn't allowed either": {qstat: show("R"), qdel: "exit 222", who: ann, err: scheduler.ErrNoAnswer, calls: "qdel 1.s\nqdel -W force 1.s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := stub(t, map[string]string{"qstat": c.qstat, "qdel": c.qdel})
			err := s.Cancel(t.Context(), scheduler.JobID{ID: "1.s"}, c.who)
			if c.err == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.err)
			}
			_, calls, _ := strings.Cut(log(), "qdel ")
			if calls != "" {
				calls = "qdel " + calls
			}
			assert.Equal(t, c.calls, calls)
		})
	}
}

func TestVersions(t *testing.T) {
	for text, ok := range map[string]bool{
		"pbs_version = 23.06.06":                  true,
		"pbs_version = 19.1.3.20190813":           true,
		"pbs_version = 2022.1.1":                  true,
		"pbs_version = 18.1.4":                    false,
		"pbs_version = PBSPro_13.1.0.160576":      false,
		"Version: 6.1.2\nCommit: 661e092552de43a": false,
		"version: 2.5.13":                         false,
	} {
		t.Run(text, func(t *testing.T) {
			s, log := stub(t, map[string]string{"qstat": `[ "$1" = --version ] && { printf '` + text + `\n'; exit 0; }
printf '` + observed("1.s", "R") + `'`, "qsub": "echo 1.s"})
			_, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
			_, submitErr := s.Submit(t.Context(), submission())
			if ok {
				require.NoError(t, err)
				require.NoError(t, submitErr)
				return
			}
			require.ErrorIs(t, err, scheduler.ErrUnsupported)
			require.ErrorIs(t, submitErr, scheduler.ErrUnsupported)
			assert.ErrorContains(t, err, "not supported: needs PBS Pro 19 or OpenPBS")
			assert.NotContains(t, log(), "qsub", "nothing is handed to a scheduler that reads it otherwise")
		})
	}
	t.Run("a wrapper hides the option", func(t *testing.T) {
		s, _ := stub(t, map[string]string{"qstat": `[ "$1" = --version ] && exit 2
` + answer(t, "qstat-B-json")})
		v, err := s.supported(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "23.06.06", v)
	})
	t.Run("nothing to be learnt", func(t *testing.T) {
		s, _ := stub(t, map[string]string{"qstat": `[ "$1" = --version ]; exit 1`})
		_, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
		require.ErrorIs(t, err, scheduler.ErrNoAnswer)
	})
}

func TestFactsAndInspect(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": `case "$1" in
-B) ` + strings.ReplaceAll(answer(t, "qstat-B-json"), "\n", ";") + ` ;;
-Q) ` + strings.ReplaceAll(answer(t, "qstat-Q-json"), "\n", ";") + ` ;;
esac`, "pbsnodes": answer(t, "pbsnodes-json")})
	f, err := s.Facts(t.Context())
	require.NoError(t, err)
	assert.Equal(t, scheduler.Facts{Version: "23.06.06", Cluster: "pbshead", KillDelay: 10 * time.Second,
		MinJobAge: 14 * 24 * time.Hour, Accounting: true, SeesOthers: true}, f)
	c, err := s.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, c.Partitions, 2)
	assert.Equal(t, scheduler.PartitionFacts{Name: "short", Up: true, Nodes: 4, MaxTime: 10 * time.Minute, DefaultTime: 5 * time.Minute,
		CPUsPerNode: 4, GPUsPerNode: 2, MemoryPerNode: 24683620 << 10}, c.Partitions[0])
	assert.Equal(t, "workq", c.Partitions[1].Name)
	assert.True(t, c.Partitions[1].Default)
	assert.Empty(t, c.Warnings)
}

func TestFactsOfAnErrorThatIsValidJSON(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": answer(t, "serverdown.qstat_-f_-F_json")})
	_, err := s.Facts(t.Context())
	require.ErrorIs(t, err, scheduler.ErrNoAnswer)
}

func TestSeesOthers(t *testing.T) {
	me, err := user.Current()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		server object
		want   bool
	}{
		"off":          {object{"query_other_jobs": "False", "managers": "root2@head"}, false},
		"a manager":    {object{"query_other_jobs": "False", "managers": "boss@head," + me.Username + "@*"}, true},
		"an operator":  {object{"query_other_jobs": "False", "operators": me.Username + "@head"}, true},
		"not set is a": {object{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, c.server.flag("query_other_jobs", true) || isManager(c.server))
		})
	}
}

func TestSizesAndTimes(t *testing.T) {
	for text, n := range map[string]int64{"24683620kb": 24683620 << 10, "64gb": 64 << 30, "1tb": 1 << 40, "2gw": 16 << 30, "100": 100, "100b": 100, "": 0, "x": 0, "-1kb": 0, "99999999999pb": 0} {
		assert.Equal(t, n, size(text), text)
	}
	for text, d := range map[string]time.Duration{"90": 90 * time.Second, "01:30": 90 * time.Second, "100:00:00": 100 * time.Hour, "": time.Minute, "x": time.Minute} {
		assert.Equal(t, d, seconds(text, time.Minute), text)
	}
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

func FuzzReceipt(f *testing.F) {
	f.Add([]byte("12.pbshead\n"), []byte(""), 0)
	f.Add([]byte(""), []byte("qsub: Unknown queue\n"), 170)
	f.Add([]byte("Welcome 3\n12[].a.b\n"), []byte("x"), 0)
	f.Fuzz(func(t *testing.T, out, errs []byte, code int) {
		r := readReceipt(result{stdout: out, stderr: errs, code: code})
		switch r.Outcome {
		case scheduler.Created:
			if !isID(r.Job.ID) || !strings.Contains(string(out), r.Job.ID) || code != 0 {
				t.Fatalf("%q taken from %q", r.Job.ID, out)
			}
		case scheduler.Rejected:
			if ids, _ := printedIDs(out); code == 0 || len(ids) > 0 {
				t.Fatalf("rejected with code %d and %q", code, out)
			}
		case scheduler.Unknown:
		default:
			t.Fatalf("outcome %q", r.Outcome)
		}
	})
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
