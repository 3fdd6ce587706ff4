package slurm

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// Find looks a job up by name and owner: in the queue, and where the site keeps accounting there too, finished jobs
// included. Either not answering makes it an error.
func (s *System) Find(ctx context.Context, who scheduler.Identity) ([]scheduler.JobID, error) {
	user := who.User
	if user == "" {
		user = strconv.Itoa(who.UID)
	}
	if who.Name == "" {
		return nil, fmt.Errorf("looking a job up: no name given")
	}
	mode, err := s.accountingOf(ctx)
	if err != nil {
		return nil, noAnswer("asking how finished jobs are kept", err)
	}
	all, err := s.queue(ctx, "", "--name="+who.Name, "--user="+user)
	if err != nil {
		return nil, noAnswer("looking for "+who.Name+" in the queue", err)
	}
	if mode.on {
		since := time.Now().UTC().Add(-lookBack).Format(stamp)
		done, err := s.account(ctx, mode, "", "--name="+who.Name, "--user="+user, "--starttime="+since)
		if err != nil {
			return nil, noAnswer("looking for "+who.Name+" in accounting", err)
		}
		all = append(all, done...)
	}
	var ids []scheduler.JobID
	seen := map[string]bool{}
	for _, r := range all {
		// Both commands filtered already; a wrapper may not have.
		if r.name == who.Name && (r.user == user || r.uid == user) && !seen[r.id] {
			seen[r.id] = true
			ids = append(ids, scheduler.JobID{ID: r.id})
		}
	}
	return ids, nil
}

// noAnswer makes err one that nobody takes for "absent".
func noAnswer(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, scheduler.ErrNoAnswer, err)
}
