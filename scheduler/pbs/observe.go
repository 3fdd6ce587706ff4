package pbs

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// maxIDs is how many jobs one qstat is asked for: well below any limit on a command line.
const maxIDs = 500

// What qstat says of a job that it doesn't print.
var (
	unknownJob  = regexp.MustCompile(`(?m)^qstat: Unknown Job Id (\S+)\s*$`)
	finishedJob = regexp.MustCompile(`(?m)^qstat: (\S+) Job has finished, use -x or -H`)
)

// Observe asks one qstat for all ids, finished jobs included. A job is absent only where the server names it as
// unknown; one that is neither printed nor named (it may be somebody else's, and hidden) is not answered.
func (s *System) Observe(ctx context.Context, ids []scheduler.JobID) (scheduler.Answer, error) {
	answer := scheduler.Answer{Known: map[scheduler.JobID]scheduler.Observation{}, Unanswered: map[scheduler.JobID]error{}}
	if len(ids) == 0 {
		return answer, nil
	}
	if _, err := s.supported(ctx); err != nil {
		return scheduler.Answer{}, err
	}
	var todo []scheduler.JobID
	for _, id := range ids {
		if !isID(id.ID) {
			answer.Unanswered[id] = fmt.Errorf("%w: %q is not a job id of PBS", scheduler.ErrNoAnswer, id.ID)
			continue
		}
		todo = append(todo, id)
	}
	var failed error
	absent := 0
	for len(todo) > 0 {
		chunk := todo[:min(maxIDs, len(todo))]
		todo = todo[len(chunk):]
		if failed == nil {
			var gone int
			gone, failed = s.observeSome(ctx, chunk, answer)
			absent += gone
		}
		if failed != nil {
			for _, id := range chunk {
				if _, known := answer.Known[id]; !known {
					answer.Unanswered[id] = failed
				}
			}
		}
	}
	if failed != nil && len(answer.Known) == 0 && absent == 0 {
		return scheduler.Answer{}, failed
	}
	return answer, nil
}

// observeSome fills in the answers about ids and returns how many of them are absent. Its error means that the
// command gave no answer about any of those it doesn't know.
func (s *System) observeSome(ctx context.Context, ids []scheduler.JobID, answer scheduler.Answer) (absent int, err error) {
	said, err := s.qstat(ctx, ids)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		records, unknown := said.about(id.ID)
		if len(records) > 1 || len(records) == 1 && unknown {
			// Some job's variables hold what looks like a record of this one. Alone, the first is its own.
			alone, err := s.qstat(ctx, []scheduler.JobID{id})
			if err != nil {
				answer.Unanswered[id] = err
				continue
			}
			if records, unknown = alone.about(id.ID); unknown {
				records = nil
			}
		}
		if len(records) > 0 {
			if o, ok := records[0].observe(); ok {
				answer.Known[id] = o
				continue
			}
		}
		if unknown {
			absent++
			continue
		}
		answer.Unanswered[id] = fmt.Errorf("%w: qstat said nothing of job %s (exit code %d): %s", scheduler.ErrNoAnswer, id.ID, said.code, said.words)
	}
	if said.code != 0 && len(said.records) == 0 && len(said.unknown) == 0 {
		return 0, fmt.Errorf("%w: qstat: exit code %d: %s", scheduler.ErrNoAnswer, said.code, said.words)
	}
	return absent, nil
}

// answered is what one qstat said.
type answered struct {
	records []record
	unknown []string // ids that the server doesn't know
	code    int
	words   string
}

func (a answered) about(id string) (records []record, unknown bool) {
	for _, r := range a.records {
		if sameJob(r.id, id) {
			records = append(records, r)
		}
	}
	for _, u := range a.unknown {
		unknown = unknown || sameJob(u, id)
	}
	return records, unknown
}

// qstat asks for ids in the form that includes finished jobs, or, where no history is kept, in the form that shows
// live ones; each form prints nothing useful in the other's place, and says so.
func (s *System) qstat(ctx context.Context, ids []scheduler.JobID) (answered, error) {
	for range 2 {
		withHistory := !s.historyOff()
		args := []string{"-f"}
		if withHistory {
			args = []string{"-x", "-f"}
		}
		for _, id := range ids {
			args = append(args, id.ID)
		}
		res, err := s.ask(ctx, "qstat", args...)
		if err != nil {
			return answered{}, err
		}
		errs := string(res.stderr)
		if withHistory && strings.Contains(errs, historyIsOff) {
			s.setHistoryOff(true)
			continue
		}
		if !withHistory && finishedJob.MatchString(errs) {
			s.setHistoryOff(false)
			continue
		}
		said := answered{records: parseRecords(res.stdout), code: res.code, words: oneLine(errs)}
		for _, m := range unknownJob.FindAllStringSubmatch(errs, -1) {
			said.unknown = append(said.unknown, m[1])
		}
		return said, nil
	}
	return answered{}, fmt.Errorf("%w: the server's job history is switched on and off just now", scheduler.ErrNoAnswer)
}
