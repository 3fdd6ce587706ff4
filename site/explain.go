package site

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/internal/tomlfile"
)

// Setting is one key of the site as it is in force.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"` // "FILE:LINE", "default", "environment NAME" or "derived: …"
	Note   string `json:"note,omitempty"`
}

// entry describes a key: what it means and its value as a file would have it.
type entry[T any] struct {
	name  string
	note  string
	value func(T) string
}

var siteEntries = []entry[Site]{
	{"site.name", "the cluster's name", func(s Site) string { return quoted(s.Name) }},
	{"site.scheduler", "slurm, pbs or local; required", func(s Site) string { return quoted(s.Scheduler) }},
	{"site.job_name_prefix", "begins every job's name", func(s Site) string { return quoted(s.JobPrefix) }},
	{"site.runtime_dir", "workloads' folders, on the file system that login and compute nodes share", func(s Site) string { return quoted(s.RuntimeDir) }},
	{"site.agent", "the agent on the compute nodes; empty: the CLI copies its sibling into runtime_dir", func(s Site) string { return quoted(s.Agent) }},
	{"site.commands", "paths of the scheduler's commands, munge and unmunge where PATH won't do", func(s Site) string { return table(s.Commands) }},
	{"site.allow_env", "variables that make programs run other code, and that jobs may set all the same", func(s Site) string { return list(s.AllowEnv) }},
	{"gateway.listen", "where ranks dial in; empty: no socket is opened", func(s Site) string { return quoted(s.Gateway.Listen) }},
	{"gateway.advertise", "what ranks dial, in this order; empty: this host's own addresses", func(s Site) string { return list(s.Gateway.Advertise) }},
	{"gateway.control", "the commands' socket, or host:port for TCP with TLS and MUNGE; empty: each user's own gateway", func(s Site) string { return quoted(s.Gateway.Control) }},
	{"gateway.control_pins", "keys of the gateway that commands trust at host:port", func(s Site) string { return list(s.Gateway.ControlPins) }},
	{"gateway.state_dir", "the gateway's store, key and audit log; empty: the user's own state folder", func(s Site) string { return quoted(s.Gateway.StateDir) }},
	{"gateway.tls", "required, optional or off", func(s Site) string { return quoted(s.Gateway.TLS) }},
	{"gateway.attest", "munge: every rank must show by MUNGE that it is its workload's owner's; none", func(s Site) string { return quoted(s.Gateway.Attest) }},
	{"gateway.handshake_timeout", "how long a rank may take to authenticate, in all", func(s Site) string { return span(s.Gateway.HandshakeTimeout) }},
	{"gateway.dial_timeout", "how long a rank tries to reach the gateway", func(s Site) string { return span(s.Gateway.DialTimeout) }},
	{"gateway.pending_handshakes", "how many ranks may authenticate at a time", func(s Site) string { return strconv.Itoa(s.HandshakeBound()) }},
	{"gateway.pending_per_source", "how many of them from one address, while half the places are taken", func(s Site) string { return strconv.Itoa(s.PerSource()) }},
	{"gateway.orphan_ttl", "how long a lost connection, or one that nobody claims, is waited for", func(s Site) string { return span(s.Gateway.OrphanTTL) }},
	{"gateway.rank_lost_after", "how long a rank may be silent", func(s Site) string { return span(s.Gateway.RankLostAfter) }},
	{"gateway.credential_ttl", "how long a job may queue before its credentials are too old", func(s Site) string { return span(s.Gateway.CredentialTTL) }},
	{"gateway.absence_deadline", "how long a job may be unknown to the scheduler before it counts as lost", func(s Site) string { return span(s.Gateway.AbsenceDeadline) }},
	{"gateway.cancel", "true where the gateway's account may cancel others' jobs", func(s Site) string { return strconv.FormatBool(s.Gateway.Cancel) }},
	{"gateway.admins", "Unix groups that see every workload", func(s Site) string { return list(s.Gateway.Admins) }},
	{"gateway.metrics", "where /metrics and /healthz are served; empty: nowhere", func(s Site) string { return quoted(s.Gateway.Metrics) }},
	{"gateway.history", "how long workloads that ended are remembered", func(s Site) string { return span(s.Gateway.HistoryTTL) }},
	{"gateway.max_live", "live workloads that a user may have", func(s Site) string { return strconv.Itoa(s.Gateway.MaxLive) }},
	{"gateway.max_credentials", "credentials that a user's live workloads may have together, one a rank and start", func(s Site) string { return strconv.Itoa(s.Gateway.MaxCredentials) }},
}

var profileEntries = []entry[Profile]{
	{"description", "for people", func(p Profile) string { return quoted(p.Description) }},
	{"partition", "slurm", func(p Profile) string { return quoted(p.Placement.Partition) }},
	{"qos", "slurm", func(p Profile) string { return quoted(p.Placement.QoS) }},
	{"queue", "pbs", func(p Profile) string { return quoted(p.Placement.Queue) }},
	{"project", "pbs", func(p Profile) string { return quoted(p.Placement.Project) }},
	{"place", "pbs: how nodes are chosen", func(p Profile) string { return quoted(p.Placement.Place) }},
	{"select_extra", "pbs: more resources of each node", func(p Profile) string { return quoted(p.Placement.SelectExtra) }},
	{"account", "that is charged", func(p Profile) string { return quoted(p.Placement.Account) }},
	{"require_account", "refuse jobs while account is empty", func(p Profile) string { return strconv.FormatBool(p.RequireAccount) }},
	{"max_nodes", "ceiling; required", func(p Profile) string { return strconv.Itoa(p.MaxNodes) }},
	{"max_ranks_per_node", "ceiling", func(p Profile) string { return strconv.Itoa(p.MaxRanksPerNode) }},
	{"cpus_per_rank", "default; 0: jobs get 1", func(p Profile) string { return strconv.Itoa(p.CPUsPerRank) }},
	{"max_cpus_per_rank", "ceiling; 0: the CPUs of max_ranks_per_node ranks, shared by the job's ranks of a node", func(p Profile) string { return strconv.Itoa(p.MaxCPUsPerRank) }},
	{"memory_per_node", "default; empty: none is asked for", func(p Profile) string { return quoted(tomlfile.Size(p.MemoryPerNode).String()) }},
	{"max_memory_per_node", "ceiling; empty: none", func(p Profile) string { return quoted(tomlfile.Size(p.MaxMemoryPerNode).String()) }},
	{"gpus_per_node", "default and ceiling", func(p Profile) string { return strconv.Itoa(p.GPUsPerNode) }},
	{"gpu_style", "slurm: gres or gpus", func(p Profile) string { return quoted(p.Placement.GPUStyle) }},
	{"gpu_type", "slurm", func(p Profile) string { return quoted(p.Placement.GPUType) }},
	{"walltime", "default", func(p Profile) string { return span(p.Walltime) }},
	{"max_walltime", "ceiling; empty: the scheduler's own", func(p Profile) string { return optional(p.MaxWalltime) }},
	{"directives", "more options of the submit command", func(p Profile) string { return list(p.Placement.Directives) }},
	{"prologue", "shell lines on every rank before the job's setup", func(p Profile) string { return list(p.Prologue) }},
	{"idle_ttl", "for sessions, which this version runs none of", func(p Profile) string { return optional(p.IdleTTL) }},
	{"max_lifetime", "for sessions, which this version runs none of", func(p Profile) string { return optional(p.MaxLifetime) }},
}

// keysOf tells which profile keys a scheduler doesn't have.
var keysOf = map[string]string{
	"partition": slurm, "qos": slurm, "gpu_style": slurm, "gpu_type": slurm, "queue": pbs, "project": pbs, "place": pbs, "select_extra": pbs,
}

// Explain lists every key as it is in force, and where its value comes from: [site] and [gateway] in the order of the
// reference, then the profiles by name.
func (s Site) Explain() []Setting {
	var all []Setting
	for _, e := range siteEntries {
		all = append(all, Setting{Key: e.name, Value: e.value(s), Source: s.source(tomlfile.Key(e.name)), Note: e.note})
	}
	for _, name := range s.ProfileNames() {
		p := s.Profiles[name]
		for _, e := range profileEntries {
			if only := keysOf[e.name]; only != "" && only != s.Scheduler {
				continue
			}
			if s.Scheduler == local && (e.name == "account" || e.name == "require_account" || e.name == "directives") {
				continue
			}
			key := tomlfile.Key("profiles").Dot(name).Dot(e.name)
			all = append(all, Setting{Key: string(key), Value: e.value(p), Source: s.profileSource(key, e.name, p), Note: e.note})
		}
	}
	return all
}

// source says where a key's value comes from.
func (s Site) source(key tomlfile.Key) string {
	widest, profile := s.Widest()
	switch {
	case s.from[key] != "":
		return "environment " + s.from[key]
	case key == "gateway.pending_handshakes" && s.Gateway.Pending == 0:
		p := s.Profiles[profile]
		text := fmt.Sprintf("derived: widest allocation %d × %d = %d ranks (profile %s) + 25 %%", p.MaxNodes, max(1, p.MaxRanksPerNode), widest, profile)
		if plusQuarter(widest) < minPending {
			text += fmt.Sprintf(", at least %d", minPending)
		}
		return text
	case key == "gateway.pending_per_source" && s.Gateway.PerSource == 0:
		return fmt.Sprintf("derived: most ranks of a node, %d, + 25 %%", s.densest())
	case s.lines[key] > 0:
		return s.place(key)
	case s.IsBuiltin():
		return "built in"
	}
	return "default"
}

func (s Site) profileSource(key tomlfile.Key, name string, p Profile) string {
	if s.lines[key] > 0 {
		return s.place(key)
	}
	switch {
	case name == "walltime" && s.lines[key.Parent().Dot("max_walltime")] > 0 && p.Walltime == p.MaxWalltime:
		return "derived: max_walltime"
	case s.lines[key.Parent()] == 0:
		return "built in"
	}
	return "default"
}

func (s Site) place(key tomlfile.Key) string { return fmt.Sprintf("%s:%d", s.Path, s.lines[key]) }

func quoted(s string) string { return `"` + tomlfile.Clean(s) + `"` }

func span(d time.Duration) string { return quoted(tomlfile.FormatDuration(d)) }

func optional(d time.Duration) string {
	if d == 0 {
		return `""`
	}
	return span(d)
}

func list(values []string) string {
	shown := make([]string, len(values))
	for i, v := range values {
		shown[i] = quoted(v)
	}
	return "[" + strings.Join(shown, ", ") + "]"
}

func table(m map[string]string) string {
	if len(m) == 0 {
		return "{}"
	}
	var shown []string
	for k, v := range m {
		shown = append(shown, k+" = "+quoted(v))
	}
	sort.Strings(shown)
	return "{ " + strings.Join(shown, ", ") + " }"
}
