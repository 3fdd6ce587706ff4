package pbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

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
		"a wrapper that fails afterwards":           {qsub: "exit 1", outcome: scheduler.Unknown, text: "exit code 1"},
		"1 with words of qsub":                      {qsub: "echo 'qsub: End of File' >&2; exit 1", outcome: scheduler.Unknown, text: "End of File"},
		"2 of a wrapper's shell":                    {qsub: "echo '/site/qsub: 3: Syntax error' >&2; exit 2", outcome: scheduler.Unknown},
		"5 without words":                           {qsub: "exit 5", outcome: scheduler.Unknown},
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
