package site

import (
	"time"

	"github.com/openai4s/hpc/internal/tomlfile"
)

// The defaults of site.toml; Explain says what each is for.
const (
	defaultPrefix     = "openai4s"
	defaultRuntimeDir = "~/.openai4s/run"
	defaultControl    = "/run/openai4s/control.sock"
	defaultStateDir   = "/var/lib/openai4s"
	defaultWalltime   = time.Hour
	localMaxWalltime  = 24 * time.Hour
)

func defaultGateway(system string) Gateway {
	const day = 24 * time.Hour
	g := Gateway{
		Control:          defaultControl,
		StateDir:         defaultStateDir,
		TLS:              "required",
		Attest:           attestNone,
		HandshakeTimeout: 30 * time.Second,
		DialTimeout:      10 * time.Minute,
		OrphanTTL:        15 * time.Minute,
		RankLostAfter:    5 * time.Minute,
		CredentialTTL:    30 * day,
		AbsenceDeadline:  10 * time.Minute,
		HistoryTTL:       30 * day,
		MaxLive:          1000,
		MaxCredentials:   1_000_000,
	}
	if system == local {
		g.Control, g.StateDir = "", "" // the CLI's own gateway, in its own folder
	}
	return g
}

// rawFile is site.toml as it is written: a pointer is nil where the file doesn't say the key.
type rawFile struct {
	Site     rawSite               `toml:"site"`
	Gateway  rawGateway            `toml:"gateway"`
	Profiles map[string]rawProfile `toml:"profiles"`
}

type rawSite struct {
	Name          *string           `toml:"name"`
	Scheduler     string            `toml:"scheduler"`
	JobNamePrefix *string           `toml:"job_name_prefix"`
	RuntimeDir    *string           `toml:"runtime_dir"`
	Agent         string            `toml:"agent"`
	Commands      map[string]string `toml:"commands"`
	AllowEnv      []string          `toml:"allow_env"`
}

type rawGateway struct {
	Listen           string             `toml:"listen"`
	Advertise        []string           `toml:"advertise"`
	Control          *string            `toml:"control"`
	ControlPins      []string           `toml:"control_pins"`
	StateDir         *string            `toml:"state_dir"`
	TLS              *string            `toml:"tls"`
	Attest           *string            `toml:"attest"`
	HandshakeTimeout *tomlfile.Duration `toml:"handshake_timeout"`
	DialTimeout      *tomlfile.Duration `toml:"dial_timeout"`
	Pending          int                `toml:"pending_handshakes"`
	PerSource        int                `toml:"pending_per_source"`
	OrphanTTL        *tomlfile.Duration `toml:"orphan_ttl"`
	RankLostAfter    *tomlfile.Duration `toml:"rank_lost_after"`
	CredentialTTL    *tomlfile.Duration `toml:"credential_ttl"`
	AbsenceDeadline  *tomlfile.Duration `toml:"absence_deadline"`
	Cancel           bool               `toml:"cancel"`
	Admins           []string           `toml:"admins"`
	Metrics          string             `toml:"metrics"`
	History          *tomlfile.Duration `toml:"history"`
	MaxLive          *int               `toml:"max_live"`
	MaxCredentials   *int               `toml:"max_credentials"`
}

type rawProfile struct {
	Description      string             `toml:"description"`
	Partition        string             `toml:"partition"`
	QoS              string             `toml:"qos"`
	Queue            string             `toml:"queue"`
	Project          string             `toml:"project"`
	Place            string             `toml:"place"`
	SelectExtra      string             `toml:"select_extra"`
	Account          string             `toml:"account"`
	RequireAccount   bool               `toml:"require_account"`
	MaxNodes         *int               `toml:"max_nodes"`
	MaxRanksPerNode  *int               `toml:"max_ranks_per_node"`
	CPUsPerRank      *int               `toml:"cpus_per_rank"`
	MaxCPUsPerRank   *int               `toml:"max_cpus_per_rank"`
	MemoryPerNode    *tomlfile.Size     `toml:"memory_per_node"`
	MaxMemoryPerNode *tomlfile.Size     `toml:"max_memory_per_node"`
	GPUsPerNode      *int               `toml:"gpus_per_node"`
	GPUStyle         string             `toml:"gpu_style"`
	GPUType          string             `toml:"gpu_type"`
	Walltime         *tomlfile.Duration `toml:"walltime"`
	MaxWalltime      *tomlfile.Duration `toml:"max_walltime"`
	Directives       []string           `toml:"directives"`
	Prologue         []string           `toml:"prologue"`
	IdleTTL          *tomlfile.Duration `toml:"idle_ttl"`
	MaxLifetime      *tomlfile.Duration `toml:"max_lifetime"`
}
