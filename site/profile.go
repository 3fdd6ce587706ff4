package site

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openai4s/hpc/internal/tomlfile"
	"github.com/openai4s/hpc/scheduler"
)

// profiles validates every [profiles.NAME]. A local site may do without: it then has the built-in site's.
func (c *checker) profiles(s *Site, raw map[string]rawProfile) {
	s.Profiles = map[string]Profile{}
	for _, name := range sortedNames(raw) {
		s.Profiles[name] = c.profile(name, s.Scheduler, raw[name])
	}
	if len(raw) > 0 {
		return
	}
	if s.Scheduler == local {
		s.Profiles["default"] = localProfile()
	} else if s.Scheduler != "" {
		c.bad("profiles", "add a table like [profiles.default] with max_nodes = 1", "names no profile")
	}
}

func (c *checker) profile(name, system string, raw rawProfile) Profile {
	at := tomlfile.Key("profiles").Dot(name)
	if !siteName.MatchString(name) {
		c.bad(at, "use letters, digits, dots, dashes and underscores, at most 64", "%s is not a profile's name", tomlfile.Show(name))
	}
	p := Profile{
		Name:           name,
		Description:    raw.Description,
		RequireAccount: raw.RequireAccount,
		Prologue:       raw.Prologue,
		Walltime:       defaultWalltime,
		Placement: scheduler.Placement{
			Partition: raw.Partition, QoS: raw.QoS, Queue: raw.Queue, Project: raw.Project, Place: raw.Place,
			SelectExtra: raw.SelectExtra, Account: raw.Account, GPUStyle: raw.GPUStyle, GPUType: raw.GPUType, Directives: raw.Directives,
		},
	}
	if strings.ContainsFunc(raw.Description, isControl) {
		c.bad(at.Dot("description"), "write one line", "holds a line end or a control character")
	}
	if raw.MaxNodes == nil {
		c.bad(at.Dot("max_nodes"), "say how many nodes a job of this profile may have, like max_nodes = 4", "is required")
	}
	p.MaxNodes = c.count(at.Dot("max_nodes"), raw.MaxNodes, 1, 1, maxRanks)
	p.MaxRanksPerNode = c.count(at.Dot("max_ranks_per_node"), raw.MaxRanksPerNode, 1, 1, maxRanks)
	if p.MaxNodes <= maxRanks && p.MaxRanksPerNode <= maxRanks && p.Width() > maxRanks {
		c.bad(at.Dot("max_ranks_per_node"), "", "%d nodes of %d ranks are more than %d ranks", p.MaxNodes, p.MaxRanksPerNode, maxRanks)
	}
	c.resources(at, &p, raw)
	c.walltimes(at, &p, raw)
	c.lines(at.Dot("prologue"), p.Prologue)
	c.placement(at, system, p)
	p.Placement = placementDefaults(system, p)
	return p
}

func (c *checker) resources(at tomlfile.Key, p *Profile, raw rawProfile) {
	p.CPUsPerRank = c.count(at.Dot("cpus_per_rank"), raw.CPUsPerRank, 0, 1, 100_000)
	p.MaxCPUsPerRank = c.count(at.Dot("max_cpus_per_rank"), raw.MaxCPUsPerRank, 0, 1, 100_000)
	if p.MaxCPUsPerRank > 0 && p.CPUsPerRank > p.MaxCPUsPerRank {
		c.bad(at.Dot("cpus_per_rank"), "", "%d is over max_cpus_per_rank, which is %d", p.CPUsPerRank, p.MaxCPUsPerRank)
	}
	p.MemoryPerNode = int64(valueOr(raw.MemoryPerNode, 0))
	p.MaxMemoryPerNode = int64(valueOr(raw.MaxMemoryPerNode, 0))
	p.MemoryForbidden = raw.MemoryPerNode != nil && *raw.MemoryPerNode == 0
	switch {
	case p.MemoryForbidden && p.MaxMemoryPerNode > 0:
		c.bad(at.Dot("max_memory_per_node"), `leave one of them out`, `memory_per_node = "" already forbids asking for memory`)
	case p.MaxMemoryPerNode > 0 && p.MemoryPerNode > p.MaxMemoryPerNode:
		c.bad(at.Dot("memory_per_node"), "", "%s is over max_memory_per_node, which is %s",
			tomlfile.FormatSize(p.MemoryPerNode), tomlfile.FormatSize(p.MaxMemoryPerNode))
	}
	p.GPUsPerNode = c.count(at.Dot("gpus_per_node"), raw.GPUsPerNode, 0, 0, 1024)
}

func (c *checker) walltimes(at tomlfile.Key, p *Profile, raw rawProfile) {
	const longest = 10 * 365 * 24 * time.Hour
	c.span(at.Dot("max_walltime"), raw.MaxWalltime, &p.MaxWalltime, time.Minute, longest)
	c.span(at.Dot("walltime"), raw.Walltime, &p.Walltime, time.Minute, longest)
	if p.MaxWalltime > 0 && p.Walltime > p.MaxWalltime {
		if raw.Walltime != nil {
			c.bad(at.Dot("walltime"), "lower it, or raise max_walltime", "%s is over max_walltime, which is %s",
				*raw.Walltime, tomlfile.FormatDuration(p.MaxWalltime))
		}
		p.Walltime = p.MaxWalltime
	}
	c.span(at.Dot("idle_ttl"), raw.IdleTTL, &p.IdleTTL, time.Minute, longest)
	c.span(at.Dot("max_lifetime"), raw.MaxLifetime, &p.MaxLifetime, time.Minute, longest)
}

// lines checks shell lines, one a string.
func (c *checker) lines(key tomlfile.Key, lines []string) {
	for i, line := range lines {
		if strings.ContainsFunc(line, func(r rune) bool { return isControl(r) && r != '\t' }) {
			c.bad(key.Index(i), "write one shell line a string", "holds a line end or a control character")
		}
	}
}

// placement checks the scheduler's own words: which of them the site's scheduler has, and their form.
func (c *checker) placement(at tomlfile.Key, system string, p Profile) {
	w := p.Placement
	for _, word := range []struct{ key, value, only string }{
		{"partition", w.Partition, slurm}, {"qos", w.QoS, slurm}, {"gpu_style", w.GPUStyle, slurm}, {"gpu_type", w.GPUType, slurm},
		{"queue", w.Queue, pbs}, {"project", w.Project, pbs}, {"place", w.Place, pbs}, {"select_extra", w.SelectExtra, pbs},
		{"account", w.Account, ""},
	} {
		key := at.Dot(word.key)
		switch {
		case word.value == "":
		case word.only != "" && system != "" && word.only != system:
			hint := "leave it out"
			if twin, ok := map[string]string{"partition": "queue", "queue": "partition"}[word.key]; ok && system != local {
				hint = "here it is called " + twin
			}
			c.bad(key, hint, "is a key of %s sites, this one's scheduler is %s", word.only, system)
		case system == local && word.key == "account":
			c.bad(key, "leave it out", "a local site charges no account")
		case !placeholder.MatchString(word.value) || strings.HasPrefix(word.value, "-") || strings.ContainsAny(word.value, "#'\"\\`$;"):
			c.bad(key, "write the scheduler's own name of it", "%s is not a name", tomlfile.Show(word.value))
		}
	}
	if w.GPUStyle != "" && w.GPUStyle != "gres" && w.GPUStyle != "gpus" {
		c.bad(at.Dot("gpu_style"), oneOf(w.GPUStyle, "gres", "gpus"), "%s is no way to ask for GPUs", tomlfile.Show(w.GPUStyle))
	}
	if w.Place != "" && !validPlace(w.Place) {
		c.bad(at.Dot("place"), oneOf(w.Place, "scatter", "pack", "free", "vscatter", "scatter:excl"), "%s is no placement", tomlfile.Show(w.Place))
	}
	if why, hint := badSelect(w.SelectExtra, p.GPUsPerNode > 0); why != "" {
		c.bad(at.Dot("select_extra"), hint, "%s", why)
	}
	for i, d := range w.Directives {
		if why, hint := badDirective(system, d); why != "" {
			c.bad(at.Dot("directives").Index(i), hint, "%s", why)
		}
	}
}

// placementDefaults fills in what a profile may leave to us.
func placementDefaults(system string, p Profile) scheduler.Placement {
	w := p.Placement
	if system == slurm && w.GPUStyle == "" && p.GPUsPerNode > 0 {
		w.GPUStyle = "gres"
	}
	if system == pbs && w.Place == "" {
		w.Place = "scatter" // without it all chunks may share one node
	}
	return w
}

// validPlace checks "type[:sharing][:group=resource]" as qsub has it.
func validPlace(s string) bool {
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ":") {
		kind := "sharing"
		switch {
		case slices.Contains([]string{"free", "pack", "scatter", "vscatter"}, part):
			kind = "type"
		case slices.Contains([]string{"excl", "shared", "exclhost"}, part):
		case strings.HasPrefix(part, "group=") && len(part) > len("group="):
			kind = "group"
		default:
			return false
		}
		if seen[kind] {
			return false
		}
		seen[kind] = true
	}
	return true
}

// badSelect checks what a profile adds to each chunk of the select line.
func badSelect(s string, gpus bool) (why, hint string) {
	if s == "" {
		return "", ""
	}
	for part := range strings.SplitSeq(s, ":") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case !ok || name == "" || value == "" || strings.ContainsAny(part, "+, "):
			return tomlfile.Show(s) + " is not a list of resources", `write "name=value", several with colons between, like "ngpus=4:arch=linux"`
		case slices.Contains([]string{"ncpus", "mem", "mpiprocs", "ompthreads"}, name):
			return name + " is set by openai4s itself", "use cpus_per_rank, memory_per_node and max_ranks_per_node"
		case name == "ngpus" && gpus:
			return "ngpus is already asked for by gpus_per_node", "leave one of them out"
		case name == "walltime" || name == "place" || name == "select":
			return fmt.Sprintf("%s can't stand in a chunk", name), "use the profile's own keys"
		}
	}
	return "", ""
}
