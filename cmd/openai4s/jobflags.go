package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/site"
	"github.com/openai4s/hpc/site/job"
)

// jobFlags are the words of the command line that win over the job file.
type jobFlags struct {
	Nodes        *int   `help:"Nodes, instead of the job file's." placeholder:"N"`
	RanksPerNode *int   `help:"Ranks on each node, instead of the job file's." placeholder:"R"`
	Profile      string `help:"Profile of the site, instead of the job file's." placeholder:"P"`
	Walltime     string `help:"Walltime such as 90m or 4h, instead of the job file's." placeholder:"D"`
	Name         string `help:"Name, instead of the job file's." placeholder:"S"`
}

// maxName is the length of a workload's name, in bytes, as the job file has it.
const maxName = 128

// check refuses what no site could mean.
func (f jobFlags) check() error {
	switch {
	case f.Nodes != nil && *f.Nodes < 1:
		return usage("--nodes must be at least 1, not %d", *f.Nodes)
	case f.RanksPerNode != nil && *f.RanksPerNode < 1:
		return usage("--ranks-per-node must be at least 1, not %d", *f.RanksPerNode)
	}
	if len(f.Name) > maxName || strings.Contains(f.Name, "/") || strings.ContainsFunc(f.Name, unicode.IsControl) {
		return usage("--name must be at most %d bytes without / and control characters", maxName)
	}
	if f.Walltime == "" {
		return nil
	}
	switch d, err := job.ParseDuration(f.Walltime); {
	case err != nil:
		return &failure{exit: exitUsage, cause: err, message: "--walltime: " + err.Error(), hint: hintOf(err)}
	case d <= 0:
		return usage("--walltime must be at least 1s, not %s", f.Walltime)
	}
	return nil
}

// load reads the job file, lays the flags over it and lets the site accept the whole.
func (f jobFlags) load(s site.Site, path string) (scheduler.Job, scheduler.Request, error) {
	if err := f.check(); err != nil {
		return scheduler.Job{}, scheduler.Request{}, err
	}
	j, err := job.Load(path, s.AllowEnv)
	if err != nil {
		return scheduler.Job{}, scheduler.Request{}, badFile(err)
	}
	f.over(&j)
	r, err := s.Resolve(j)
	if err != nil {
		return scheduler.Job{}, scheduler.Request{}, badFile(err)
	}
	return j, r, nil
}

func (f jobFlags) over(j *scheduler.Job) {
	if f.Nodes != nil {
		j.Nodes = *f.Nodes
	}
	if f.RanksPerNode != nil {
		j.RanksPerNode = *f.RanksPerNode
	}
	if f.Profile != "" {
		j.Profile = f.Profile
	}
	if d, err := job.ParseDuration(f.Walltime); err == nil && f.Walltime != "" {
		j.Walltime = d
	}
	if f.Name != "" {
		j.Name = f.Name
	}
}

func usage(format string, args ...any) error {
	return &failure{exit: exitUsage, message: fmt.Sprintf(format, args...)}
}
