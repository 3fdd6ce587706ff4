package scheduler

import "time"

// Kind of a workload.
type Kind string

// The kinds.
const (
	Batch   Kind = "batch"
	Session Kind = "session"
)

// Job is what the user asked for: job.toml and the command line's flags over it, before any site was asked.
// A zero Nodes, RanksPerNode, Walltime or resource means "not said"; the site fills it in.
type Job struct {
	File          string // the job file, absolute; "" for a job made from flags
	Name          string
	Profile       string
	Nodes         int
	RanksPerNode  int
	Walltime      time.Duration
	Command       []string
	Setup         []string // shell lines on every rank before the command
	Workdir       string   // absolute
	Restarts      int      // scheduler requeues survived
	Kind          Kind
	TTY           bool // sessions: a terminal for the command
	UpstreamFiles bool // write the per-rank credential files of the upstream worker too
	Output        string
	Labels        map[string]string
	Resources     Resources
	Env           map[string]string
	Secrets       map[string]SecretSource
	GangTimeout   time.Duration
	Signal        Signal
	Inputs        []Input
	Outputs       Outputs
}

// Resources asked for; zero values mean the profile's.
type Resources struct {
	CPUsPerRank   int
	MemoryPerNode int64 // bytes
	GPUsPerNode   *int  // nil: the profile's
}

// SecretSource says where submit reads a secret's value; exactly one field is set.
type SecretSource struct {
	Env  string // name of a variable of the submitting shell
	File string // absolute path
}

// Signal bounds the end of a command.
type Signal struct {
	BeforeWalltime time.Duration `json:"before_walltime"` // the warning
	Grace          time.Duration `json:"grace"`           // between TERM and KILL
}

// Input of a job, pinned by hash and size.
type Input struct {
	Path   string `json:"path"`             // absolute
	Name   string `json:"name"`             // as the job file said it, the name in the inventory
	SHA256 string `json:"sha256,omitempty"` // 64 lower-case hex digits; "" until pinned
	Size   int64  `json:"size,omitempty"`   // bytes, once pinned
}

// Outputs of a job.
type Outputs struct {
	Publish string              `json:"publish,omitempty"` // a folder, absolute; "" publishes nothing
	Ports   map[string][]string `json:"ports,omitempty"`   // port name to globs below the workdir
}

// Placement holds the scheduler's own words, filled by site alone.
type Placement struct {
	Partition   string   `json:"partition,omitempty"` // slurm
	QoS         string   `json:"qos,omitempty"`
	Queue       string   `json:"queue,omitempty"`   // pbs
	Project     string   `json:"project,omitempty"` // pbs
	Place       string   `json:"place,omitempty"`   // pbs: scatter, pack, free, …
	SelectExtra string   `json:"select_extra,omitempty"`
	Account     string   `json:"account,omitempty"`
	GPUStyle    string   `json:"gpu_style,omitempty"` // gres | gpus
	GPUType     string   `json:"gpu_type,omitempty"`
	Directives  []string `json:"directives,omitempty"`
}

// Request is a Job that a site accepted. site.Resolve is its only maker (a test holds it): after it nobody
// validates again. It holds no environment, argv, secret or id.
type Request struct {
	System        string        `json:"system"` // slurm | pbs | local
	Profile       string        `json:"profile"`
	Name          string        `json:"name"`
	JobNamePrefix string        `json:"job_name_prefix"`
	Kind          Kind          `json:"kind"`
	TTY           bool          `json:"tty,omitempty"`
	Nodes         int           `json:"nodes"`
	RanksPerNode  int           `json:"ranks_per_node"`
	Walltime      time.Duration `json:"walltime"`
	CPUsPerRank   int           `json:"cpus_per_rank"`
	MemoryPerNode int64         `json:"memory_per_node,omitempty"` // bytes; 0: the site forbids asking, or nothing was asked
	GPUsPerNode   int           `json:"gpus_per_node,omitempty"`
	Placement     Placement     `json:"placement"`
	Prologue      []string      `json:"prologue,omitempty"` // shell lines on every rank, before the job's setup
	Workdir       string        `json:"workdir"`            // absolute
	Output        string        `json:"output"`             // absolute or relative to Workdir; %w workload, %j scheduler's id, %r rank
	Restarts      int           `json:"restarts,omitempty"`
	Signal        Signal        `json:"signal"`
	GangTimeout   time.Duration `json:"gang_timeout"`
	IdleTTL       time.Duration `json:"idle_ttl,omitempty"`
	MaxLifetime   time.Duration `json:"max_lifetime,omitempty"`
	RuntimeDir    string        `json:"runtime_dir"` // absolute; RUN is a folder in it named after the workload
	UpstreamFiles bool          `json:"upstream_files,omitempty"`
}

// Size is the number of ranks.
func (r Request) Size() int { return r.Nodes * r.RanksPerNode }
