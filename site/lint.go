package site

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/openai4s/hpc/internal/tomlfile"
)

// The severities of a Finding.
const (
	SeverityError   = "error"   // no job can work
	SeverityWarning = "warning" // some won't, or somebody may do what they shouldn't
	SeverityNote    = "note"    // worth knowing
)

// Finding is what Lint found: a file that can be loaded, and is likely not what was meant.
type Finding struct {
	Severity string `json:"severity"`
	Key      string `json:"key"`
	Line     int    `json:"line,omitempty"` // of the key, where the file says it
	Text     string `json:"text"`
	Remedy   string `json:"remedy,omitempty"`
}

// Lint looks at the file alone, and at the files it names on this host; the scheduler isn't asked.
func (s Site) Lint() []Finding {
	l := &linter{site: s}
	if s.Scheduler != local {
		l.network()
		l.shared()
	}
	l.security()
	l.attest()
	l.programs()
	for _, name := range s.ProfileNames() {
		l.profile(s.Profiles[name])
	}
	if ttl := s.Gateway.CredentialTTL; s.Scheduler != local && ttl < 24*time.Hour {
		l.add(SeverityWarning, "gateway.credential_ttl", "raise it above the longest wait in the queue",
			"a job that queues longer than %s can't register", tomlfile.FormatDuration(ttl))
	}
	return l.found
}

type linter struct {
	site  Site
	found []Finding
}

func (l *linter) add(severity string, key tomlfile.Key, remedy, format string, args ...any) {
	l.found = append(l.found, Finding{Severity: severity, Key: string(key), Line: l.site.lines[key], Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// network looks at how ranks on other hosts find the gateway.
func (l *linter) network() {
	g := l.site.Gateway
	_, listenPort, _ := net.SplitHostPort(g.Listen)
	switch {
	case g.Listen == "":
		l.add(SeverityError, "gateway.listen", `set it, like listen = "0.0.0.0:8761"`, "no socket is opened, so no rank can dial in")
	case isLoopback(g.Listen):
		l.add(SeverityError, "gateway.listen", "listen on an address that the compute nodes reach", "only this host can dial %s", g.Listen)
	case listenPort == "0":
		l.add(SeverityWarning, "gateway.listen", "choose a port", "each start takes another port, and ranks lose the gateway")
	}
	if g.Listen != "" && len(g.Advertise) == 0 {
		l.add(SeverityNote, "gateway.advertise", "name the address on the network that the compute nodes share", "ranks are told this host's own addresses")
	}
	for i, address := range g.Advertise {
		key := tomlfile.Key("gateway.advertise").Index(i)
		if isLoopback(address) {
			l.add(SeverityWarning, key, "name an address that the compute nodes reach", "on a compute node, %s is the node itself", address)
		}
		if _, port, _ := net.SplitHostPort(address); g.Listen != "" && listenPort != "0" && port != listenPort {
			l.add(SeverityWarning, key, "make the ports the same, unless one is forwarded to the other", "%s has another port than listen, which is %s", address, g.Listen)
		}
	}
}

// shared looks at folders that every node must have.
func (l *linter) shared() {
	if dir := temporary(l.site.RuntimeDir); dir != "" {
		l.add(SeverityWarning, "site.runtime_dir", "choose a folder on the shared file system", "%s is each node's own", dir)
	}
}

// security looks at who else could read or change what the gateway relies on.
func (l *linter) security() {
	g := l.site.Gateway
	if info, err := os.Stat(l.site.Path); err == nil && l.site.Path != "" && info.Mode().Perm()&0o022 != 0 {
		l.add(SeverityWarning, "", "chmod go-w "+l.site.Path, "others than its owner may change %s", l.site.Path)
	}
	if l.site.Scheduler != local {
		switch {
		case g.TLS == "off":
			l.add(SeverityWarning, "gateway.tls", `write tls = "required"`, "credentials and secrets cross the network in the clear")
		case g.TLS == "optional" && !g.Attests():
			l.add(SeverityNote, "gateway.tls", `write tls = "required" once no upstream worker dials in`, "workers that don't ask for TLS are served in the clear")
		}
	}
	if g.ControlIsRemote() && len(g.ControlPins) == 0 {
		l.add(SeverityError, "gateway.control_pins", "start the gateway, and write the pin that openai4s-gateway pin prints",
			"commands can't tell the gateway at %s from another program, and don't speak to it", g.Control)
	}
	if g.ControlIsRemote() && isLoopback(g.Control) {
		l.add(SeverityWarning, "gateway.control", "name this host as the other login nodes do, or a socket", "only this host can dial %s", g.Control)
	}
	if g.Control != "" && !g.ControlIsRemote() {
		dir := filepath.Dir(g.Control)
		info, err := os.Stat(dir)
		if temporary(dir) != "" || err == nil && info.Mode().Perm()&0o002 != 0 {
			l.add(SeverityWarning, "gateway.control", "choose a folder that only the gateway's account may write, like /run/openai4s",
				"anybody may write in %s, and put a socket of their own in place of the gateway's", dir)
		}
	}
	if dir := temporary(g.StateDir); dir != "" {
		l.add(SeverityWarning, "gateway.state_dir", "choose a folder that lasts, like /var/lib/openai4s", "%s may be emptied while jobs run", dir)
	}
	if host, _, err := net.SplitHostPort(g.Metrics); err == nil && !isLoopback(g.Metrics) {
		if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
			l.add(SeverityNote, "gateway.metrics", "listen on 127.0.0.1 or on the monitoring network", "every host that reaches this one can read the metrics")
		}
	}
	if len(l.site.AllowEnv) > 0 {
		l.add(SeverityNote, "site.allow_env", "", "jobs may set %s, which make programs run other code", strings.Join(l.site.AllowEnv, ", "))
	}
}

// attest looks for what ranks and gateway need of MUNGE, on this host: others may differ.
func (l *linter) attest() {
	if !l.site.Gateway.Attests() {
		return
	}
	for _, c := range []struct{ name, where string }{{"munge", "every compute node"}, {"unmunge", "the gateway's host"}} {
		if l.site.Commands[c.name] != "" {
			continue // programs looks for it
		}
		if _, err := exec.LookPath(c.name); err != nil {
			l.add(SeverityWarning, "gateway.attest", "install MUNGE, or name the path in commands", "%s, which %s needs, isn't in the PATH of this host", c.name, c.where)
		}
	}
	if l.site.Gateway.TLS == "optional" {
		l.add(SeverityNote, "gateway.attest", `write tls = "required"`, "workers without TLS can't attest and are refused, whatever tls says")
	}
}

// programs looks for the files that the site names; on compute nodes they may differ.
func (l *linter) programs() {
	check := func(key tomlfile.Key, path string) {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			l.add(SeverityWarning, key, "correct the path, or install it", "%s isn't there on this host", path)
		case info.IsDir() || info.Mode().Perm()&0o111 == 0:
			l.add(SeverityWarning, key, "name a program", "%s can't be run", path)
		}
	}
	if l.site.Agent != "" {
		check("site.agent", l.site.Agent)
	}
	for _, name := range sortedNames(l.site.Commands) {
		check(tomlfile.Key("site.commands").Dot(name), l.site.Commands[name])
	}
}

func (l *linter) profile(p Profile) {
	at := tomlfile.Key("profiles").Dot(p.Name)
	if p.RequireAccount && p.Placement.Account == "" {
		l.add(SeverityWarning, at.Dot("require_account"), "set account", "profile %s requires an account and names none: it refuses every job", p.Name)
	}
	if p.GPUsPerNode == 0 {
		for _, name := range []string{"gpu_style", "gpu_type"} {
			if l.site.lines[at.Dot(name)] > 0 {
				l.add(SeverityWarning, at.Dot(name), "set gpus_per_node, or leave it out", "profile %s has no GPUs, so this does nothing", p.Name)
			}
		}
	}
}

// temporary returns the folder of temporary files that a path is in, "" if it is in none.
func temporary(path string) string {
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return dir
		}
	}
	return ""
}
