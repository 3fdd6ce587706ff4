package pbs

import (
	"context"
	"fmt"
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// refusal is what an exit code of qsub means. The code is a PBS error number modulo 256; 2, 5 and 6 are the client's own, and only
// with its words: they are a shell's and any wrapper's as well. 1 is about script files, which we use none of.
type refusal struct {
	reason scheduler.Reason
	hint   string
	later  bool
}

var refusals = map[int]refusal{
	2:   {reason: scheduler.BackendRejected, hint: "qsub did not take an option; look at the profile's directives"},
	5:   {reason: scheduler.BackendRejected, hint: "a directive of the profile conflicts with select; ask for resources by select_extra"},
	6:   {reason: scheduler.BackendRejected, hint: "a directive of the profile conflicts with select; nodes= can't be used"},
	32:  {reason: scheduler.PolicyRejected, hint: "a hook of the site refused the job; the text is the site's own"},
	38:  {reason: scheduler.PolicyRejected, hint: "a limit on queued jobs is reached; try again when some have ended", later: true},
	154: {reason: scheduler.BackendRejected, hint: "a directive of the profile names an attribute that this server doesn't know"},
	155: {reason: scheduler.BackendRejected, hint: "a directive of the profile sets an attribute that users may not set"},
	159: {reason: scheduler.AuthorizationDenied, hint: "this user may not submit here; the queue may have an access list"},
	160: {reason: scheduler.BackendUnavailable, hint: "the server's name can't be resolved; look at PBS_SERVER and pbs.conf", later: true},
	166: {reason: scheduler.BackendRejected, hint: "a value was refused; look at the profile's select_extra, place, project and directives"},
	170: {reason: scheduler.BackendRejected, hint: "the profile's queue is not one of this server; `qstat -Q` lists them"},
	173: {reason: scheduler.BackendRejected, hint: "the queue takes no jobs at the moment; try again later or use another profile", later: true},
	187: {reason: scheduler.BackendRejected, hint: "the profile asks for a resource that this server doesn't know; look at select_extra"},
	188: {reason: scheduler.PolicyRejected, hint: "ask for less (nodes, walltime, resources) or use another profile"},
}

// noConnection begins the last line of a qsub that never reached the server, whatever its exit code.
const noConnection = "qsub: cannot connect to server "

// Submit runs qsub with the script on its standard input. Submissions of one process go one at a time.
func (s *System) Submit(ctx context.Context, sub scheduler.Submission) (scheduler.Receipt, error) {
	if _, err := s.supported(ctx); err != nil {
		return scheduler.Receipt{}, err
	}
	s.submit.Lock()
	defer s.submit.Unlock()
	if err := ctx.Err(); err != nil {
		return scheduler.Receipt{}, fmt.Errorf("waiting for the previous submission: %w", err)
	}
	res, err := s.run.do(ctx, s.limits.submit, sub.Script, "qsub", sub.Args...)
	if err != nil {
		return scheduler.Receipt{}, err
	}
	return readReceipt(res), nil
}

// readReceipt judges what qsub printed. A whole line that is a job id, and exactly one, is the only thing believed
// to be a job; an end that can't be explained is Unknown, since a qsub that died may have left a job behind.
func readReceipt(res result) scheduler.Receipt {
	ids, _ := printedIDs(res.stdout)
	unknown := scheduler.Receipt{Outcome: scheduler.Unknown, Reason: scheduler.BackendSubmissionUnknown, Text: res.said()}
	switch {
	case len(ids) == 1 && (res.code == 0 || res.cut != nil):
		return scheduler.Receipt{Outcome: scheduler.Created, Job: scheduler.JobID{ID: ids[0]}, Text: neutral(string(res.stderr))}
	case res.cut != nil:
		unknown.Text = strings.TrimSpace(res.cut.Error() + "\n" + neutral(string(res.stderr)))
		return unknown
	case len(ids) > 0, res.code == 0:
		return unknown
	}
	rejected := scheduler.Receipt{Outcome: scheduler.Rejected, Text: fmt.Sprintf("%s (exit code %d)", res.said(), res.code)}
	if lastLineBegins(res.stderr, noConnection) {
		rejected.Reason, rejected.Later = scheduler.BackendUnavailable, true
		rejected.Hint = "the PBS server does not answer; `qstat -B` shows when it does"
		return rejected
	}
	why, definite := refusals[res.code]
	if !definite || res.code < lowestOfServer && !clientSpeaks(res.stderr) {
		unknown.Text = rejected.Text
		return unknown
	}
	rejected.Reason, rejected.Hint, rejected.Later = why.reason, why.hint, why.later
	return rejected
}

// lowestOfServer is the least exit code that a server's refusal was recorded with.
const lowestOfServer = 32

// clientSpeaks tells whether qsub itself said why it asked the server nothing.
func clientSpeaks(stderr []byte) bool {
	for line := range strings.Lines(string(stderr)) {
		if strings.HasPrefix(line, "qsub: ") {
			return true
		}
	}
	return false
}

func lastLineBegins(out []byte, prefix string) bool {
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	return strings.HasPrefix(lines[len(lines)-1], prefix)
}
