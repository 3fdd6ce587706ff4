package pbs

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// legalName is what qsub takes as a job's name and qselect as its key, up to longestName characters. (Said in the
// pattern, the number costs every start of the program four milliseconds.)
var legalName = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)

const longestName = 230

// historyIsOff is what commands say, with exit code 0, when they are asked for finished jobs that nobody keeps.
// They then print live jobs neither, so that such an answer tells nothing at all.
const historyIsOff = "PBS is not configured to maintain job history"

// Find asks for jobs of that name and owner twice: among the live ones, then with the finished ones. A job that
// ends in between is in the second answer. Where the site keeps no history, finished jobs can't be found.
func (s *System) Find(ctx context.Context, who scheduler.Identity) ([]scheduler.JobID, error) {
	if !legalName.MatchString(who.Name) || len(who.Name) > longestName || who.User == "" {
		return nil, fmt.Errorf("looking for job %q of user %q: name or user is not a possible one", who.Name, who.User)
	}
	if _, err := s.supported(ctx); err != nil {
		return nil, err
	}
	live, err := s.selected(ctx, "-u", who.User, "-N", who.Name)
	if err != nil {
		return nil, err
	}
	all, err := s.selected(ctx, "-x", "-u", who.User, "-N", who.Name)
	if err != nil {
		return nil, err
	}
	var found []scheduler.JobID
	for _, id := range append(live, all...) {
		if job := (scheduler.JobID{ID: id}); !slices.Contains(found, job) {
			found = append(found, job)
		}
	}
	return found, nil
}

func (s *System) selected(ctx context.Context, args ...string) ([]string, error) {
	res, err := s.ask(ctx, "qselect", args...)
	if err != nil {
		return nil, err
	}
	if res.code != 0 {
		return nil, res.failure()
	}
	if strings.Contains(string(res.stderr), historyIsOff) {
		s.setHistoryOff(true)
		return nil, nil
	}
	ids, rest := printedIDs(res.stdout)
	if len(ids) == 0 && len(rest) > 0 { // text, but no id: not an answer that there is none
		return nil, res.failure()
	}
	return ids, nil
}
