// Package site is one cluster as site.toml describes it: the names users say, what they mean to the scheduler,
// and the bounds. Site.Resolve is the only maker of a scheduler.Request.
package site

import (
	"path/filepath"
	"time"

	"github.com/openai4s/hpc/internal/tomlfile"
	"github.com/openai4s/hpc/scheduler"
)

// The schedulers a site can name.
const (
	slurm = "slurm"
	pbs   = "pbs"
	local = "local"
)

// Error is what is wrong with one key of a site or job file: file, line, key, message and hint. Every error of Load
// and Resolve is one.
type Error = tomlfile.Error

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

	lines map[tomlfile.Key]int    // of the file's keys
	from  map[tomlfile.Key]string // the environment variable that won over the file
}

// Gateway is the [gateway] table.
type Gateway struct {
	Listen           string // host:port, ":port" for all addresses; "": no socket is opened
	Advertise        []string
	Control          string   // a socket's path, or host:port; "": none named, an embedded gateway is used
	ControlPins      []string // keys that a gateway at host:port may have, "sha256:" + hex
	StateDir         string   // "": none named; an embedded gateway has its own
	TLS              string   // required | optional | off
	Attest           string   // none | munge
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
	MaxLive          int // live workloads a user may have
	MaxCredentials   int // credentials of a user's live workloads, together
}

// ControlIsRemote tells whether Control is host:port, for TCP with TLS and MUNGE, rather than a socket's path.
func (g Gateway) ControlIsRemote() bool { return g.Control != "" && !filepath.IsAbs(g.Control) }

// The values of Attest.
const (
	attestNone  = "none"
	attestMunge = "munge"
)

// Attests tells whether every rank must show by MUNGE that it is the workload's owner's.
func (g Gateway) Attests() bool { return g.Attest == attestMunge }

// Profile is one [profiles.NAME] table.
type Profile struct {
	Name             string
	Description      string
	Placement        scheduler.Placement
	RequireAccount   bool // a job needs an account, and this profile must name it
	MaxNodes         int
	MaxRanksPerNode  int
	CPUsPerRank      int           // default; 0: not said, jobs get 1
	MaxCPUsPerRank   int           // ceiling; 0: what CPUsPerRank × MaxRanksPerNode leaves to a rank
	MemoryPerNode    int64         // default, bytes; 0: none is asked for
	MaxMemoryPerNode int64         // ceiling, bytes; 0: none
	MemoryForbidden  bool          // the site forbids asking for memory
	GPUsPerNode      int           // default and ceiling
	Walltime         time.Duration // default
	MaxWalltime      time.Duration // ceiling; 0: the scheduler's own
	Prologue         []string
	IdleTTL          time.Duration // sessions; 0: none
	MaxLifetime      time.Duration // sessions; 0: none
}

// IsBuiltin tells whether no file was read.
func (s Site) IsBuiltin() bool { return s.Path == "" }

// Width is the widest allocation of the profile, in ranks.
func (p Profile) Width() int { return max(1, p.MaxNodes) * max(1, p.MaxRanksPerNode) }

// Widest is the widest allocation in ranks, and the profile it comes from.
func (s Site) Widest() (ranks int, profile string) {
	for name, p := range s.Profiles {
		if w := p.Width(); w > ranks || w == ranks && name < profile {
			ranks, profile = w, name
		}
	}
	return ranks, profile
}

// minPending is the least derived bound on pending handshakes, that of the upstream gateway.
const minPending = 64

// HandshakeBound is the bound on pending handshakes: as written, else a quarter above the widest allocation, so that
// the ranks of the widest job and some retries find a slot at once.
func (s Site) HandshakeBound() int {
	if s.Gateway.Pending > 0 {
		return s.Gateway.Pending
	}
	widest, _ := s.Widest()
	return max(minPending, plusQuarter(widest))
}

// PerSource is the bound on pending handshakes of one source address: as written, else a quarter above the ranks that
// a full node has.
func (s Site) PerSource() int {
	if s.Gateway.PerSource > 0 {
		return s.Gateway.PerSource
	}
	return plusQuarter(s.densest())
}

func (s Site) densest() int {
	n := 1
	for _, p := range s.Profiles {
		n = max(n, p.MaxRanksPerNode)
	}
	return n
}

// plusQuarter is 1.25 × n, rounded up.
func plusQuarter(n int) int { return n + (n+3)/4 }
