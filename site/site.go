// Package site is one cluster as site.toml describes it: the names users say, what they mean to the scheduler,
// and the bounds. Site.Resolve is the only maker of a scheduler.Request.
package site

import (
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// Site is site.toml after defaults. All paths are absolute, "~" expanded for the calling user.
type Site struct {
	Path       string // of the file; "" for the built-in local site
	SHA256     string // of the file's bytes, hex; of nothing for the built-in site
	Name       string
	Scheduler  string // slurm | pbs | local
	JobPrefix  string
	RuntimeDir string
	Agent      string // "" : the CLI copies its sibling to <runtime_dir>/agent/<sha256>/
	Commands   map[string]string
	AllowEnv   []string // names of injecting variables that [env] may set all the same
	Gateway    Gateway
	Profiles   map[string]Profile
}

// Gateway is the [gateway] table.
type Gateway struct {
	Listen           string // "": no socket is opened
	Advertise        []string
	Control          string // "": none named; an embedded gateway is used
	StateDir         string
	TLS              string // required | optional | off
	HandshakeTimeout time.Duration
	DialTimeout      time.Duration
	Pending          int // as written; 0: derived
	PerSource        int // as written; 0: derived
	OrphanTTL        time.Duration
	RankLostAfter    time.Duration
	CredentialTTL    time.Duration
	AbsenceDeadline  time.Duration
	Cancel           bool
	Admins           []string
	Metrics          string // listener of /metrics and /healthz; "": none
	HistoryTTL       time.Duration
	MaxLive          int    // live workloads a user may have
	Attest           string // "" | munge
}

// Profile is one [profiles.NAME] table.
type Profile struct {
	Name            string
	Description     string
	Placement       scheduler.Placement
	MaxNodes        int
	MaxRanksPerNode int
	CPUsPerRank     int
	MemoryPerNode   int64 // bytes
	GPUsPerNode     int
	Walltime        time.Duration
	MaxWalltime     time.Duration
	Prologue        []string
	IdleTTL         time.Duration
	MaxLifetime     time.Duration
}

// Load reads a site file: path, else OPENAI4S_SITE, else /etc/openai4s/site.toml, else the built-in local site.
func Load(path string) (Site, error) { return Site{}, nil }

// Builtin is the local site that needs no file.
func Builtin() Site { return Site{} }

// IsBuiltin tells whether no file was read.
func (s Site) IsBuiltin() bool { return s.Path == "" }

// Widest is the widest allocation in ranks, and the profile it comes from.
func (s Site) Widest() (ranks int, profile string) { return 0, "" }

// HandshakeBound is the bound on pending handshakes.
func (s Site) HandshakeBound() int { return 0 }

// PerSource is the bound on pending handshakes of one source address.
func (s Site) PerSource() int { return 0 }

// Resolve turns a Job into a Request this site accepts, or says which key is wrong and what would be right.
func (s Site) Resolve(j scheduler.Job) (scheduler.Request, error) { return scheduler.Request{}, nil }
