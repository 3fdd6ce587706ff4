package slurm

import (
	"context"
	"slices"
	"strings"
	"time"
)

// accountingMode says whether there is accounting, and what its command can tell.
type accountingMode struct {
	on     bool
	fields []string // that sacct is asked for
	asked  time.Time
}

// modeTTL is how long what the controller said about accounting is believed.
const modeTTL = 10 * time.Minute

// lookBack bounds how far a look-up by name goes back: longer than any credential, so any allocation of ours, lives.
const lookBack = 60 * 24 * time.Hour

// accountingOf tells whether finished jobs can be looked up, asking the controller at most every modeTTL.
func (s *System) accountingOf(ctx context.Context) (accountingMode, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounting != nil && time.Since(s.accounting.asked) < modeTTL {
		return *s.accounting, nil
	}
	conf, err := s.config(ctx)
	if err != nil {
		return accountingMode{}, err
	}
	mode := accountingMode{on: hasAccounting(conf), fields: recordFields, asked: time.Now()}
	if mode.on {
		// It asks nobody, so that a failure means an sacct that doesn't know the option: the old fields will do.
		if out, err := s.run.ask(ctx, s.limit.query, "sacct", "--helpformat"); err == nil {
			known := strings.Fields(string(out))
			for _, f := range laterFields {
				if slices.Contains(known, f) {
					mode.fields = append(slices.Clone(mode.fields), f)
				}
			}
		}
	}
	s.accounting = &mode
	return mode, nil
}

// account asks sacct; selection says for which jobs. Steps are left out.
func (s *System) account(ctx context.Context, mode accountingMode, cluster string, selection ...string) ([]record, error) {
	d := newDelimiter()
	args := []string{"--noheader", "--parsable", "--allocations", "--delimiter=" + d, "--format=" + strings.Join(mode.fields, ",")}
	args = append(onCluster(args, cluster), selection...)
	out, err := s.run.ask(ctx, s.limit.query, "sacct", args...)
	if err != nil {
		return nil, err
	}
	return records(out, d, mode.fields, false), nil
}
