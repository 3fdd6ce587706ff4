package local

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// options are what Submission.Args say to this scheduler, each as --name=value:
//
//	--chdir=DIR            the script's working directory, absolute
//	--output=PATTERN       the file that takes the script's output, absolute; %j is the job's id, %% a percent sign
//	--nodes=N              how many nodes are pretended, named node1 to nodeN
//	--ranks-per-node=R     how many ranks each has; both serve the list of hosts
//	--time=DURATION        the walltime, as time.ParseDuration takes it; 0: none
//	--kill-delay=DURATION  between TERM and KILL
type options struct {
	Chdir        string        `json:"chdir"`
	Output       string        `json:"output"`
	Nodes        int           `json:"nodes"`
	RanksPerNode int           `json:"ranks_per_node"`
	Time         time.Duration `json:"time"`
	KillDelay    time.Duration `json:"kill_delay"`
}

// defaultKillDelay is between TERM and KILL where nothing else is said.
const defaultKillDelay = 5 * time.Second

// maxNodes bounds the list of hosts, in entries.
const maxNodes = 1 << 16

func parseOptions(args []string) (options, error) {
	var o options
	f := flags("local scheduler")
	f.StringVar(&o.Chdir, "chdir", "/", "")
	f.StringVar(&o.Output, "output", "/dev/null", "")
	f.IntVar(&o.Nodes, "nodes", 1, "")
	f.IntVar(&o.RanksPerNode, "ranks-per-node", 1, "")
	f.DurationVar(&o.Time, "time", 0, "")
	f.DurationVar(&o.KillDelay, "kill-delay", defaultKillDelay, "")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case f.NArg() > 0:
		return options{}, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case !filepath.IsAbs(o.Chdir):
		return options{}, fmt.Errorf("--chdir %q is not an absolute path", o.Chdir)
	case !filepath.IsAbs(o.Output):
		return options{}, fmt.Errorf("--output %q is not an absolute path", o.Output)
	case o.Nodes < 1 || o.RanksPerNode < 1 || o.Nodes > maxNodes/o.RanksPerNode:
		return options{}, fmt.Errorf("%d nodes with %d ranks each: 1 to %d ranks in all can be started here", o.Nodes, o.RanksPerNode, maxNodes)
	case o.Time < 0 || o.KillDelay < 0:
		return options{}, errors.New("--time and --kill-delay can't be negative")
	}
	return o, nil
}

// flags makes a flag set that leaves the words to its caller.
func flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

// expand replaces the codes of an output pattern: %j by the job's id, %r by a rank, %% by a percent sign.
func expand(pattern, job, rank string) string {
	return strings.NewReplacer("%%", "%", "%j", job, "%r", rank).Replace(pattern)
}
