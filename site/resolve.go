package site

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/openai4s/hpc/internal/tomlfile"
	"github.com/openai4s/hpc/scheduler"
)

// What a job has where neither it nor the profile says.
const (
	defaultOutput      = "openai4s-%w.out"
	defaultGangTimeout = 10 * time.Minute
	maxRestarts        = 100
)

// Resolve turns a Job into a Request this site accepts, or says which key is wrong and what would be right. Its
// errors are *Error: they name the job's file, line and key, and the site file's line that draws the limit.
func (s Site) Resolve(j scheduler.Job) (scheduler.Request, error) {
	r := resolver{site: s, job: j}
	p, err := r.profile()
	if err != nil {
		return scheduler.Request{}, err
	}
	req := scheduler.Request{
		System:        s.Scheduler,
		Profile:       p.Name,
		Name:          j.Name,
		JobNamePrefix: s.JobPrefix,
		Kind:          j.Kind,
		TTY:           j.TTY,
		Placement:     p.Placement,
		Prologue:      p.Prologue,
		Workdir:       j.Workdir,
		Output:        orElse(j.Output, defaultOutput),
		Restarts:      j.Restarts,
		Signal:        j.Signal,
		GangTimeout:   orElse(j.GangTimeout, defaultGangTimeout),
		RuntimeDir:    s.RuntimeDir,
		UpstreamFiles: j.UpstreamFiles,
	}
	if req.Kind == "" {
		req.Kind = scheduler.Batch
	}
	for _, step := range []func(Profile, *scheduler.Request) *Error{r.size, r.walltime, r.cpus, r.memory, r.gpus, r.account, r.paths, r.rest} {
		if e := step(p, &req); e != nil {
			return scheduler.Request{}, e
		}
	}
	return req, nil
}

func orElse[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

type resolver struct {
	site Site
	job  scheduler.Job
}

// bad is an Error about a key of the job. Flags win over the file, so the file is blamed only where it says the value.
func (r resolver) bad(key tomlfile.Key, value any, hint, format string, args ...any) *Error {
	e := &Error{Key: key, Msg: fmt.Sprintf(format, args...), Hint: hint}
	if r.job.File == "" {
		return e
	}
	f, err := tomlfile.Read(r.job.File)
	if err != nil {
		e.File = r.job.File
		return e
	}
	if value == nil || f.Says(key, value) {
		at := f.Pos(key)
		e.File, e.Line, e.Column = r.job.File, at.Line, at.Column
	}
	return e
}

// limit names the place of a profile's limit.
func (r resolver) limit(p Profile, key string) string {
	where := "profile " + tomlfile.Show(p.Name)
	if line := r.site.lines[tomlfile.Key("profiles").Dot(p.Name).Dot(key)]; line > 0 {
		return fmt.Sprintf("%s of %s, %s:%d", key, where, tomlfile.Clean(r.site.Path), line)
	}
	return fmt.Sprintf("%s of %s", key, where)
}

func (r resolver) profile() (Profile, error) {
	names := r.site.ProfileNames()
	switch want := r.job.Profile; {
	case want != "":
		if p, ok := r.site.Profiles[want]; ok {
			return p, nil
		}
		hint := "this site has: " + strings.Join(names, ", ")
		if near := tomlfile.Nearest(want, names); near != "" {
			hint = fmt.Sprintf("did you mean %q? %s", near, hint)
		}
		return Profile{}, r.bad("profile", want, hint, "site %s has no profile %s", tomlfile.Show(r.site.Name), tomlfile.Show(want))
	case len(names) == 1:
		return r.site.Profiles[names[0]], nil
	}
	if p, ok := r.site.Profiles["default"]; ok {
		return p, nil
	}
	return Profile{}, r.bad("profile", nil, "choose one of "+strings.Join(names, ", "),
		"is required: site %s has %d profiles and none is named default", tomlfile.Show(r.site.Name), len(names))
}

func (r resolver) size(p Profile, req *scheduler.Request) *Error {
	req.Nodes, req.RanksPerNode = orElse(r.job.Nodes, 1), orElse(r.job.RanksPerNode, 1)
	switch {
	case req.Nodes < 1 || req.Nodes > maxRanks:
		return r.bad("nodes", req.Nodes, "", "%d is out of range, it must be from 1 to %d", req.Nodes, maxRanks)
	case req.RanksPerNode < 1 || req.RanksPerNode > maxRanks:
		return r.bad("ranks_per_node", req.RanksPerNode, "", "%d is out of range, it must be from 1 to %d", req.RanksPerNode, maxRanks)
	case req.Nodes > p.MaxNodes:
		return r.bad("nodes", req.Nodes, r.wider(p, req), "%d is over the limit of %d (%s)", req.Nodes, p.MaxNodes, r.limit(p, "max_nodes"))
	case req.RanksPerNode > max(1, p.MaxRanksPerNode):
		return r.bad("ranks_per_node", req.RanksPerNode, r.wider(p, req), "%d is over the limit of %d (%s)",
			req.RanksPerNode, max(1, p.MaxRanksPerNode), r.limit(p, "max_ranks_per_node"))
	}
	return nil
}

// wider names the profiles that would take the job's size.
func (r resolver) wider(p Profile, req *scheduler.Request) string {
	var fit []string
	for _, name := range r.site.ProfileNames() {
		if o := r.site.Profiles[name]; req.Nodes <= o.MaxNodes && req.RanksPerNode <= max(1, o.MaxRanksPerNode) {
			fit = append(fit, name)
		}
	}
	if len(fit) > 0 {
		return "it would fit profile " + strings.Join(fit, ", ")
	}
	return fmt.Sprintf("ask for at most %d nodes of %d ranks", p.MaxNodes, max(1, p.MaxRanksPerNode))
}

func (r resolver) walltime(p Profile, req *scheduler.Request) *Error {
	req.Walltime = orElse(r.job.Walltime, orElse(p.Walltime, defaultWalltime))
	shown := tomlfile.FormatDuration(req.Walltime)
	switch {
	case req.Walltime < time.Second:
		return r.bad("walltime", req.Walltime, "", "%s is too short, it must be at least 1s", req.Walltime)
	case p.MaxWalltime > 0 && req.Walltime > p.MaxWalltime:
		return r.bad("walltime", req.Walltime, "", "%s is over the limit of %s (%s)", shown, tomlfile.FormatDuration(p.MaxWalltime), r.limit(p, "max_walltime"))
	case r.job.Signal.BeforeWalltime >= req.Walltime:
		return r.bad("signal.before_walltime", r.job.Signal.BeforeWalltime, "shorten it, or raise walltime", "%s before the end leaves nothing of a walltime of %s",
			tomlfile.FormatDuration(r.job.Signal.BeforeWalltime), shown)
	}
	return nil
}

func (r resolver) cpus(p Profile, req *scheduler.Request) *Error {
	const key = "resources.cpus_per_rank"
	want := r.job.Resources.CPUsPerRank
	req.CPUsPerRank = orElse(want, orElse(p.CPUsPerRank, 1))
	switch {
	case want < 0:
		return r.bad(key, want, "", "%d is out of range, it must be at least 1", want)
	case p.MaxCPUsPerRank > 0:
		if want > p.MaxCPUsPerRank {
			return r.bad(key, want, "", "%d is over the limit of %d (%s)", want, p.MaxCPUsPerRank, r.limit(p, "max_cpus_per_rank"))
		}
	case p.CPUsPerRank > 0 && want > 0:
		// A full node has max_ranks_per_node ranks of cpus_per_rank; fewer ranks may share the same CPUs.
		node := p.CPUsPerRank * max(1, p.MaxRanksPerNode)
		if most := max(p.CPUsPerRank, node/req.RanksPerNode); want > most {
			return r.bad(key, want, "ask for fewer, or for fewer ranks per node", "%d for each of %d ranks is over the %d CPUs of a node (%s)",
				want, req.RanksPerNode, node, r.limit(p, "cpus_per_rank"))
		}
	}
	return nil
}

func (r resolver) memory(p Profile, req *scheduler.Request) *Error {
	const key = "resources.memory_per_node"
	want := r.job.Resources.MemoryPerNode
	req.MemoryPerNode = orElse(want, p.MemoryPerNode)
	switch {
	case want < 0:
		return r.bad(key, nil, "", "%d bytes are out of range", want)
	case want > 0 && p.MemoryForbidden:
		return r.bad(key, tomlfile.Size(want), "leave it out", "this site doesn't let jobs ask for memory (%s)", r.limit(p, "memory_per_node"))
	case p.MaxMemoryPerNode > 0 && want > p.MaxMemoryPerNode:
		at := "max_memory_per_node"
		if r.site.lines[tomlfile.Key("profiles").Dot(p.Name).Dot(at)] == 0 {
			at = "memory_per_node"
		}
		return r.bad(key, tomlfile.Size(want), "", "%s is over the limit of %s (%s)", tomlfile.FormatSize(want), tomlfile.FormatSize(p.MaxMemoryPerNode), r.limit(p, at))
	}
	return nil
}

func (r resolver) gpus(p Profile, req *scheduler.Request) *Error {
	const key = "resources.gpus_per_node"
	req.GPUsPerNode = p.GPUsPerNode
	if r.job.Resources.GPUsPerNode == nil {
		return nil
	}
	want := *r.job.Resources.GPUsPerNode
	req.GPUsPerNode = want
	switch {
	case want < 0:
		return r.bad(key, want, "", "%d is out of range, it must be at least 0", want)
	case want > 0 && p.GPUsPerNode == 0:
		hint := "no profile of this site has any"
		var with []string
		for _, name := range r.site.ProfileNames() {
			if r.site.Profiles[name].GPUsPerNode > 0 {
				with = append(with, name)
			}
		}
		if len(with) > 0 {
			hint = "profiles with GPUs: " + strings.Join(with, ", ")
		}
		return r.bad(key, want, hint, "profile %s has no GPUs", tomlfile.Show(p.Name))
	case want > p.GPUsPerNode:
		return r.bad(key, want, "", "%d is over the limit of %d (%s)", want, p.GPUsPerNode, r.limit(p, "gpus_per_node"))
	}
	return nil
}

func (r resolver) account(p Profile, _ *scheduler.Request) *Error {
	if p.RequireAccount && p.Placement.Account == "" {
		return &Error{File: r.site.Path, Line: r.site.lines[tomlfile.Key("profiles").Dot(p.Name).Dot("require_account")],
			Key: tomlfile.Key("profiles").Dot(p.Name).Dot("account"), Msg: fmt.Sprintf("profile %s requires an account and names none", tomlfile.Show(p.Name)),
			Hint: "choose another profile, or ask for one that names your account"}
	}
	return nil
}

func (r resolver) paths(_ Profile, req *scheduler.Request) *Error {
	if !filepath.IsAbs(req.Workdir) || strings.ContainsFunc(req.Workdir, isControl) {
		return r.bad("workdir", nil, "", "%s is not an absolute path", tomlfile.Show(req.Workdir))
	}
	if !filepath.IsAbs(req.RuntimeDir) {
		return &Error{File: r.site.Path, Key: "site.runtime_dir", Msg: tomlfile.Show(req.RuntimeDir) + " is not an absolute path"}
	}
	if why := badOutput(req.Output); why != "" {
		return r.bad("output", req.Output, "%w is the workload, %j the scheduler's id, %r the rank, %% a percent sign", "%s", why)
	}
	return nil
}

// badOutput checks the pattern of the output file's name.
func badOutput(pattern string) string {
	switch {
	case strings.ContainsFunc(pattern, isControl):
		return tomlfile.Show(pattern) + " holds a control character"
	case strings.HasSuffix(pattern, "/"):
		return tomlfile.Show(pattern) + " is a folder, not a file"
	case len(pattern) > 1024:
		return "is longer than 1024 bytes"
	}
	for rest := pattern; ; {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			return ""
		}
		if i+1 == len(rest) {
			return tomlfile.Show(pattern) + " ends with a lone %"
		}
		if c := []rune(rest[i+1:])[0]; !strings.ContainsRune("wjr%", c) {
			return fmt.Sprintf("%s holds %%%s, which is not known here", tomlfile.Show(pattern), tomlfile.Clean(string(c)))
		}
		rest = rest[i+2:]
	}
}

func (r resolver) rest(_ Profile, req *scheduler.Request) *Error {
	switch {
	case req.Restarts < 0 || req.Restarts > maxRestarts:
		return r.bad("restarts", req.Restarts, "", "%d is out of range, it must be from 0 to %d", req.Restarts, maxRestarts)
	case req.GangTimeout < 0:
		return r.bad("gang.timeout", req.GangTimeout, "", "%s is negative", req.GangTimeout)
	case req.Name == "":
		return r.bad("name", nil, "", "is required")
	case req.Kind == scheduler.Session:
		return r.bad("kind", nil, `leave it out: a batch job runs its command to the end`, "this version runs no sessions: nothing could attach to one")
	case req.TTY:
		return r.bad("tty", nil, `leave it out`, "only a session has a terminal, and this version runs none")
	case req.UpstreamFiles:
		return r.bad("upstream_files", nil, `leave it out`, "this version writes no files for the upstream worker")
	}
	return nil
}
