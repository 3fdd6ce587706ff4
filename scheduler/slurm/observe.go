package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// maxIDs on one command line: some 8 kB, far below any limit, and squeue loads the whole queue each time.
const maxIDs = 1000

var errOpenRecord = errors.New("the queue doesn't have the job and accounting never saw its end; " +
	"if that stays so, an administrator closes the record with `sacctmgr show runawayjobs`")

// Observe asks squeue for all ids, then sacct, where there is accounting, for those that the queue doesn't have.
// A job is absent only if both answered.
func (s *System) Observe(ctx context.Context, ids []scheduler.JobID) (scheduler.Answer, error) {
	answer := scheduler.Answer{Known: map[scheduler.JobID]scheduler.Observation{}, Unanswered: map[scheduler.JobID]error{}}
	byCluster := map[string][]string{}
	for _, id := range ids {
		switch {
		case !wellFormed(id):
			answer.Unanswered[id] = fmt.Errorf("%w: %q is no job id of this scheduler", scheduler.ErrNoAnswer, word(id.String()))
		case !slices.Contains(byCluster[id.Cluster], id.ID):
			byCluster[id.Cluster] = append(byCluster[id.Cluster], id.ID)
		}
	}
	if len(byCluster) == 0 {
		return answer, nil
	}
	failed := 0
	var last error
	for cluster, ids := range byCluster {
		for chunk := range slices.Chunk(ids, maxIDs) {
			if err := s.observe(ctx, cluster, chunk, answer); err != nil {
				last = err
				failed += len(chunk)
				for _, id := range chunk {
					answer.Unanswered[scheduler.JobID{Cluster: cluster, ID: id}] = err
				}
			}
		}
	}
	if last != nil && failed == len(ids) {
		return scheduler.Answer{}, last
	}
	return answer, nil
}

// observe puts what is known of ids, all of one cluster, into answer. An error means that the queue didn't answer.
func (s *System) observe(ctx context.Context, cluster string, ids []string, answer scheduler.Answer) error {
	found, err := s.queueByID(ctx, cluster, ids)
	if err != nil {
		return noAnswer("asking squeue", err)
	}
	queued := byID(found)
	var missing []string
	for _, id := range ids {
		if r, ok := queued[id]; ok {
			answer.Known[scheduler.JobID{Cluster: cluster, ID: id}] = r.observation()
		} else {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	unanswered := func(err error) {
		for _, id := range missing {
			answer.Unanswered[scheduler.JobID{Cluster: cluster, ID: id}] = err
		}
	}
	mode, err := s.accountingOf(ctx)
	if err != nil {
		unanswered(noAnswer("asking how finished jobs are kept", err))
		return nil
	}
	if !mode.on {
		return nil
	}
	found, err = s.account(ctx, mode, cluster, "--jobs="+strings.Join(missing, ","))
	if err != nil {
		unanswered(noAnswer("asking sacct", err))
		return nil
	}
	done := byID(found)
	for _, id := range missing {
		job := scheduler.JobID{Cluster: cluster, ID: id}
		r, ok := done[id]
		switch {
		case !ok: // absent: both answered, neither has it
		case lookUp(r.state).phase.Terminal():
			answer.Known[job] = r.observation()
		default: // slurmdbd hears of an end late, or never
			answer.Unanswered[job] = fmt.Errorf("%w: accounting has it as %s: %w", scheduler.ErrNoAnswer, word(r.state), errOpenRecord)
		}
	}
	return nil
}

// byID finds records by job number and by array task. The last one of a job counts: accounting has one for each size
// that a job had.
func byID(found []record) map[string]record {
	index := make(map[string]record, len(found))
	for _, r := range found {
		index[r.id] = r
		if r.arrayID != "" {
			index[r.arrayID] = r
		}
	}
	return index
}

// wellFormed: a number, or an array task's or het component's "12_3", "12+1", and a cluster's name if one is said.
// Nothing else may reach a command line.
func wellFormed(id scheduler.JobID) bool {
	number := id.ID != "" && id.ID[0] >= '0' && id.ID[0] <= '9' && strings.Trim(id.ID, "0123456789_+") == ""
	return number && (id.Cluster == "" || clusterName.MatchString(id.Cluster))
}

var clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
