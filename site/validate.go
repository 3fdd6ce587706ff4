package site

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/openai4s/hpc/internal/tomlfile"
)

// The limits on a site's sizes. They are far beyond any cluster and keep products of them from overflowing.
const (
	maxRanks   = 1_000_000 // of an allocation
	maxPending = 2_000_000
	// maxCredentials of one user: a credential is 512 bytes of a bundle.
	maxCredentials = 1_000_000_000
	// maxSocketPath is sun_path's 108 bytes without the closing NUL.
	maxSocketPath = 107
)

var (
	siteName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	jobPrefix   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)
	groupName   = regexp.MustCompile(`^[^\s:,]{1,64}$`)
	variable    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	pin         = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	placeholder = regexp.MustCompile(`^[^\s\x00-\x1f\x7f]+$`)
)

// commandNames are the programs whose path a site can set, by scheduler. munge and unmunge say who is at the other end
// of a control connection over TCP, and whose process a rank is.
var commandNames = map[string][]string{
	slurm: {"munge", "sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sshare", "unmunge"},
	pbs:   {"munge", "pbs_tmrsh", "pbsdsh", "pbsnodes", "qdel", "qmgr", "qselect", "qstat", "qsub", "tracejob", "unmunge"},
	local: {"munge", "unmunge"},
}

// checker turns a file into a Site and collects what is wrong with it.
type checker struct {
	file     *tomlfile.File
	problems tomlfile.Problems
}

func (c *checker) bad(key tomlfile.Key, hint, format string, args ...any) {
	c.problems.Add(c.file.Errorf(key, hint, format, args...))
}

// wrong adds an error that has message and hint but no place yet.
func (c *checker) wrong(key tomlfile.Key, e *Error) { c.bad(key, e.Hint, "%s", e.Msg) }

// fromFile decodes, fills in defaults and validates.
func fromFile(f *tomlfile.File) (Site, error) {
	var raw rawFile
	if err := f.Decode(&raw); err != nil {
		return Site{}, err
	}
	c := &checker{file: f}
	s := Site{Path: f.Path, SHA256: f.SHA256, lines: f.Lines(), AllowEnv: raw.Site.AllowEnv, Agent: raw.Site.Agent}
	c.site(&s, raw.Site)
	c.gateway(&s, raw.Gateway)
	c.profiles(&s, raw.Profiles)
	if err := c.problems.First(); err != nil {
		return Site{}, err
	}
	c.pending(s)
	c.credentials(s)
	return s, c.problems.First()
}

func (c *checker) site(s *Site, raw rawSite) {
	s.Scheduler = raw.Scheduler
	switch raw.Scheduler {
	case slurm, pbs, local:
	case "":
		c.bad("site.scheduler", `write scheduler = "slurm", "pbs" or "local" in [site]`, "is required")
	default:
		c.bad("site.scheduler", oneOf(raw.Scheduler, slurm, pbs, local), "%s is no scheduler known here", tomlfile.Show(raw.Scheduler))
	}
	s.Name = valueOr(raw.Name, "site")
	if !siteName.MatchString(s.Name) {
		c.bad("site.name", "use letters, digits, dots, dashes and underscores, at most 64", "%s is not a site's name", tomlfile.Show(s.Name))
	}
	s.JobPrefix = valueOr(raw.JobNamePrefix, defaultPrefix)
	if !jobPrefix.MatchString(s.JobPrefix) {
		c.bad("site.job_name_prefix", "begin with a letter; letters, digits, dashes and underscores, at most 32",
			"%s can't begin a job's name", tomlfile.Show(s.JobPrefix))
	}
	s.RuntimeDir = c.path("site.runtime_dir", valueOr(raw.RuntimeDir, defaultRuntimeDir))
	if s.Agent != "" {
		s.Agent = c.path("site.agent", s.Agent)
	}
	s.Commands = map[string]string{}
	for name, path := range raw.Commands {
		key := tomlfile.Key("site.commands").Dot(name)
		known := commandNames[s.Scheduler]
		switch {
		case known != nil && !slices.Contains(known, name):
			c.bad(key, oneOf(name, known...), "is no command that a %s site runs", s.Scheduler)
		case !filepath.IsAbs(path) || strings.ContainsFunc(path, isControl):
			c.bad(key, "write the path from the root", "%s is not an absolute path", tomlfile.Show(path))
		default:
			s.Commands[name] = filepath.Clean(path)
		}
	}
	for i, name := range s.AllowEnv {
		if !variable.MatchString(name) {
			c.bad(tomlfile.Key("site.allow_env").Index(i), "name each variable in full, without patterns",
				"%s is not a variable's name", tomlfile.Show(name))
		}
	}
}

func (c *checker) gateway(s *Site, raw rawGateway) {
	g := defaultGateway(s.Scheduler)
	listen := func(key tomlfile.Key, v string, into *string) {
		if v == "" {
			return
		}
		addr, err := parseListen(v)
		if err != nil {
			c.wrong(key, err)
		}
		*into = addr
	}
	listen("gateway.listen", raw.Listen, &g.Listen)
	listen("gateway.metrics", raw.Metrics, &g.Metrics)
	for i, v := range raw.Advertise {
		addr, err := parseAdvertise(v)
		if err != nil {
			c.wrong(tomlfile.Key("gateway.advertise").Index(i), err)
		} else if slices.Contains(g.Advertise, addr) {
			c.bad(tomlfile.Key("gateway.advertise").Index(i), "name each address once", "%s stands twice", tomlfile.Show(v))
		}
		g.Advertise = append(g.Advertise, addr)
	}
	if raw.Control != nil {
		g.Control = *raw.Control
	}
	if raw.StateDir != nil {
		g.StateDir = *raw.StateDir
	}
	if g.StateDir != "" {
		g.StateDir = c.path("gateway.state_dir", g.StateDir)
	}
	c.control(&g, s.Scheduler, raw.ControlPins)
	g.TLS = valueOr(raw.TLS, g.TLS)
	if !slices.Contains([]string{"required", "optional", "off"}, g.TLS) {
		c.bad("gateway.tls", oneOf(g.TLS, "required", "optional", "off"), "%s is no TLS mode", tomlfile.Show(g.TLS))
	}
	c.attest(&g, raw.Attest)
	c.span("gateway.handshake_timeout", raw.HandshakeTimeout, &g.HandshakeTimeout, time.Second, time.Hour)
	c.span("gateway.dial_timeout", raw.DialTimeout, &g.DialTimeout, time.Second, 30*24*time.Hour)
	c.span("gateway.orphan_ttl", raw.OrphanTTL, &g.OrphanTTL, time.Second, 365*24*time.Hour)
	// Agents send a heartbeat every 15 s and three may be missed.
	c.span("gateway.rank_lost_after", raw.RankLostAfter, &g.RankLostAfter, time.Minute, 365*24*time.Hour)
	c.span("gateway.credential_ttl", raw.CredentialTTL, &g.CredentialTTL, time.Minute, 10*365*24*time.Hour)
	c.span("gateway.absence_deadline", raw.AbsenceDeadline, &g.AbsenceDeadline, time.Second, 365*24*time.Hour)
	c.span("gateway.history", raw.History, &g.HistoryTTL, time.Minute, 100*365*24*time.Hour)
	g.Pending = c.count("gateway.pending_handshakes", &raw.Pending, 0, 0, maxPending)
	g.PerSource = c.count("gateway.pending_per_source", &raw.PerSource, 0, 0, maxPending)
	g.MaxLive = c.count("gateway.max_live", raw.MaxLive, g.MaxLive, 1, maxRanks)
	g.MaxCredentials = c.count("gateway.max_credentials", raw.MaxCredentials, g.MaxCredentials, 1, maxCredentials)
	g.Cancel = raw.Cancel
	g.Admins = raw.Admins
	for i, name := range g.Admins {
		if !groupName.MatchString(name) || strings.ContainsFunc(name, isControl) {
			c.bad(tomlfile.Key("gateway.admins").Index(i), "name Unix groups", "%s is not a group's name", tomlfile.Show(name))
		}
	}
	s.Gateway = g
}

// attest takes how ranks show whose they are. What they show is bound to their TLS connection.
func (c *checker) attest(g *Gateway, mode *string) {
	g.Attest = valueOr(mode, g.Attest)
	switch {
	case g.Attest != attestNone && g.Attest != attestMunge:
		c.bad("gateway.attest", oneOf(g.Attest, attestNone, attestMunge), "%s is no attestation known here", tomlfile.Show(g.Attest))
	case g.Attests() && g.TLS == "off":
		c.bad("gateway.attest", `write tls = "required", or leave attest out`, "%s is bound to the TLS connection, and tls is off", tomlfile.Show(g.Attest))
	}
}

// control takes where commands find the gateway: a socket's path, or host:port and the keys to expect there.
func (c *checker) control(g *Gateway, scheduler string, pins []string) {
	remote := g.Control != "" && !strings.ContainsAny(g.Control, "/~$") && strings.Contains(g.Control, ":")
	switch {
	case remote && scheduler == local:
		c.bad("gateway.control", "name a socket, or leave it out", "ranks of a local site are processes of this machine, and so is its gateway")
	case remote:
		address, err := parseAdvertise(g.Control)
		if err != nil {
			err.Hint = `write "host:port", like "head:8762", or a socket's path`
			c.wrong("gateway.control", err)
		}
		g.Control = address
		if socket := filepath.Join(g.StateDir, "control.sock"); len(socket) > maxSocketPath {
			c.bad("gateway.state_dir", "choose a shorter folder", "a socket's path has at most %d bytes, %s has %d", maxSocketPath, socket, len(socket))
		}
	case g.Control != "":
		g.Control = c.path("gateway.control", g.Control)
		if len(g.Control) > maxSocketPath {
			c.bad("gateway.control", "choose a shorter folder", "a socket's path has at most %d bytes, this one has %d", maxSocketPath, len(g.Control))
		}
	}
	if len(pins) > 0 && !remote {
		c.bad("gateway.control_pins", `leave it out, or write control = "host:port"`, "the kernel says who serves a socket, it needs no pin")
	}
	for i, p := range pins {
		if !pin.MatchString(p) {
			c.bad(tomlfile.Key("gateway.control_pins").Index(i), "openai4s-gateway pin prints it on the gateway's host", "%s is no pin (sha256: and 64 hex digits)", tomlfile.Show(p))
		}
	}
	g.ControlPins = pins
}

// credentials refuses a limit that the widest job could never keep to.
func (c *checker) credentials(s Site) {
	widest, profile := s.Widest()
	if n := s.Gateway.MaxCredentials; n < widest {
		c.bad("gateway.max_credentials", fmt.Sprintf("set it to %d or more", widest),
			"%d is below the %d ranks of the widest allocation, of profile %s, which nobody could then submit", n, widest, tomlfile.Show(profile))
	}
}

// pending refuses a bound that the widest job could never get through.
func (c *checker) pending(s Site) {
	widest, profile := s.Widest()
	if n := s.Gateway.Pending; n > 0 && n < widest {
		c.bad("gateway.pending_handshakes",
			fmt.Sprintf("set it to %d or more, or to 0, which derives %d", widest, plusQuarter(widest)),
			"%d is below the %d ranks of the widest allocation, of profile %s, which could then never start", n, widest, tomlfile.Show(profile))
	}
}

func (c *checker) path(key tomlfile.Key, p string) string {
	abs, err := expand(p)
	if err != nil {
		c.wrong(key, err)
	}
	return abs
}

// span takes a duration between least and most.
func (c *checker) span(key tomlfile.Key, v *tomlfile.Duration, into *time.Duration, least, most time.Duration) {
	if v == nil {
		return
	}
	d := time.Duration(*v)
	switch {
	case d < least:
		c.bad(key, "", "%s is too short, it must be at least %s", *v, tomlfile.FormatDuration(least))
	case d > most:
		c.bad(key, "", "%s is too long, it must be at most %s", *v, tomlfile.FormatDuration(most))
	}
	*into = d
}

// count takes a number between least and most, or the default where the file says none.
func (c *checker) count(key tomlfile.Key, v *int, def, least, most int) int {
	if v == nil {
		return def
	}
	if *v < least || *v > most {
		c.bad(key, "", "%d is out of range, it must be from %d to %d", *v, least, most)
	}
	return *v
}

func valueOr[T any](v *T, def T) T {
	if v == nil {
		return def
	}
	return *v
}

// oneOf is the hint for a value that must be one of a few.
func oneOf(got string, known ...string) string {
	if near := tomlfile.Nearest(got, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(known) == 0 {
		return "there is none; leave it out"
	}
	return "known: " + strings.Join(known, ", ")
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
