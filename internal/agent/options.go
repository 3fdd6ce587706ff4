package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Options of one rank. Everything may come from the environment; flags win.
type Options struct {
	Bundle    string
	Epoch     int64
	Rank      int
	Job       string // the scheduler's id of the job
	Host      string // the scheduler's name of the node
	LocalRank int    // -1: from the rank and the bundle's ranks per node
	NodeRank  int    // -1: likewise
	Deadline  time.Time
	Guarded   bool // this program has the guard command; never set in a test, whose program would run its tests anew
	Version   string
	Stdout    io.Writer
	Stderr    io.Writer
}

// dir is RUN, where the bundle lies.
func (o Options) dir() string { return filepath.Dir(o.Bundle) }

// ErrUsage is returned by Parse for arguments or variables that can't be used.
var ErrUsage = errors.New("openai4s-agent can't start")

// rankVariables are what launchers set, in the order they are looked at.
var rankVariables = []string{"SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "OPENAI4S_RANK"}

// hostVariables are what schedulers call the node; HOSTNAME isn't one, it may be the first node's on every rank.
var hostVariables = []string{"SLURMD_NODENAME", "OPENAI4S_NODENAME"}

// Parse reads arguments and environment. flag.ErrHelp means that help was printed.
func Parse(args []string, getenv func(string) string, stderr io.Writer) (Options, error) {
	o := Options{Stderr: stderr}
	f := flag.NewFlagSet("openai4s-agent", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.Bundle, "bundle", getenv("OPENAI4S_BUNDLE"), "the gang's bundle `file` (OPENAI4S_BUNDLE)")
	epoch := f.String("epoch", getenv("OPENAI4S_EPOCH"), "the `epoch` of this start (OPENAI4S_EPOCH)")
	rank := f.String("rank", "", "this process's `rank`; default: what the launcher set")
	f.StringVar(&o.Job, "job", getenv("OPENAI4S_JOB_ID"), "the scheduler's job `id` (OPENAI4S_JOB_ID)")
	f.StringVar(&o.Host, "host", "", "the scheduler's `name` of this node")
	f.IntVar(&o.LocalRank, "local-rank", -1, "rank among those of this node")
	f.IntVar(&o.NodeRank, "node-rank", -1, "rank of this node")
	deadline := f.String("deadline", getenv("OPENAI4S_DEADLINE"), "when the walltime ends, in unix `seconds` (OPENAI4S_DEADLINE)")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%w: unknown argument %q", ErrUsage, f.Arg(0))
	}
	if o.Bundle == "" {
		return o, fmt.Errorf("%w: no bundle is named; OPENAI4S_BUNDLE is set by the batch script that `openai4s submit` makes, or use --bundle", ErrUsage)
	}
	if !filepath.IsAbs(o.Bundle) {
		return o, fmt.Errorf("%w: the bundle's path %q is not absolute", ErrUsage, o.Bundle)
	}
	var err error
	if o.Epoch, err = strconv.ParseInt(*epoch, 10, 64); err != nil || o.Epoch < 0 {
		return o, fmt.Errorf("%w: the epoch %q is not a number from 0 (OPENAI4S_EPOCH or --epoch)", ErrUsage, *epoch)
	}
	if o.Rank, err = findRank(*rank, getenv); err != nil {
		return o, err
	}
	if *deadline != "" {
		seconds, err := strconv.ParseInt(*deadline, 10, 64)
		if err != nil || seconds <= 0 {
			return o, fmt.Errorf("%w: the deadline %q is not unix seconds (OPENAI4S_DEADLINE or --deadline)", ErrUsage, *deadline)
		}
		o.Deadline = time.Unix(seconds, 0)
	}
	if o.Host == "" {
		o.Host = findHost(getenv)
	}
	return o, nil
}

const usage = `openai4s-agent runs one rank of a workload: it dials the gateway, waits for the whole gang, runs the command and
reports its end. The batch script starts it, normally without arguments.

  srun openai4s-agent
  openai4s-agent --bundle /home/me/.openai4s/run/wl_1a2b3c4d5e6f/gang-0.bundle --epoch 0 --rank 2
  openai4s-agent step [--output PORT=GLOB]... [-- command...]     an external step
  openai4s-agent launch ...                                       one agent per rank, for schedulers without a launcher

`

// findRank takes the flag, else the variable that OPENAI4S_WORKER_RANK_ENV names, else what a launcher set.
func findRank(text string, getenv func(string) string) (int, error) {
	from := "--rank"
	if text == "" {
		if name := getenv("OPENAI4S_WORKER_RANK_ENV"); name != "" {
			from, text = name, getenv(name)
			if text == "" {
				return 0, fmt.Errorf("%w: OPENAI4S_WORKER_RANK_ENV names %s, which is not set", ErrUsage, name)
			}
		}
	}
	for _, name := range rankVariables {
		if text == "" {
			from, text = name, getenv(name)
		}
	}
	if text == "" {
		return 0, fmt.Errorf("%w: no rank is known: none of %v is set; start it by the launcher (srun) or use --rank", ErrUsage, rankVariables)
	}
	rank, err := strconv.Atoi(text)
	if err != nil || rank < 0 {
		return 0, fmt.Errorf("%w: the rank %q of %s is not a number from 0", ErrUsage, text, from)
	}
	return rank, nil
}

func findHost(getenv func(string) string) string {
	for _, name := range hostVariables {
		if host := getenv(name); host != "" {
			return host
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}
