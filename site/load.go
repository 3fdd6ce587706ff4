package site

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openai4s/hpc/internal/tomlfile"
	"github.com/openai4s/hpc/scheduler"
)

// The variables that bear on a site.
const (
	envSite      = "OPENAI4S_SITE"             // path of the site file
	envListen    = "OPENAI4S_WORKER_LISTEN"    // wins over gateway.listen: "port" or "host:port"
	envAdvertise = "OPENAI4S_WORKER_ADVERTISE" // wins over gateway.advertise: host:port, several with commas between
)

// systemFile is where a site's administrator puts the file.
const systemFile = "/etc/openai4s/site.toml"

// Load reads a site file: path, else OPENAI4S_SITE, else /etc/openai4s/site.toml, else the built-in local site. A
// file that was named must be there. Errors are *Error.
func Load(path string) (Site, error) { return load(path, os.Getenv, systemFile) }

func load(path string, getenv func(string) string, system string) (Site, error) {
	named := path
	if named == "" {
		named = getenv(envSite)
	}
	s, err := read(named, system)
	if err != nil {
		var e *Error
		if named != "" && path == "" && errors.As(err, &e) && errors.Is(err, fs.ErrNotExist) {
			e.Hint = envSite + " names it: correct or unset that"
		}
		return Site{}, err
	}
	if err := s.overlay(getenv); err != nil {
		return Site{}, err
	}
	return s, nil
}

// read reads the file that was named, else the system's, else gives the built-in site.
func read(named, system string) (Site, error) {
	if named != "" {
		return readFile(named)
	}
	s, err := readFile(system)
	if errors.Is(err, fs.ErrNotExist) {
		return builtin()
	}
	return s, err
}

func readFile(path string) (Site, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Site{}, &Error{File: path, Msg: "making its path absolute: " + err.Error(), Err: err}
	}
	f, err := tomlfile.Read(abs)
	if err != nil {
		return Site{}, err
	}
	return fromFile(f)
}

// overlay puts the environment's addresses over the file's.
func (s *Site) overlay(getenv func(string) string) error {
	s.from = map[tomlfile.Key]string{}
	if v := getenv(envListen); v != "" {
		addr, bad := parseListen(v)
		if bad != nil {
			bad.Msg = envListen + " " + bad.Msg
			return bad
		}
		s.Gateway.Listen = addr
		s.from["gateway.listen"] = envListen
	}
	if v := getenv(envAdvertise); v != "" {
		var list []string
		for _, one := range splitList(v) {
			addr, bad := parseAdvertise(one)
			if bad != nil {
				bad.Msg = envAdvertise + " " + bad.Msg
				return bad
			}
			list = append(list, addr)
		}
		if len(list) == 0 {
			return &Error{Msg: envAdvertise + " names no address", Hint: advertiseHint}
		}
		s.Gateway.Advertise = list
		s.from["gateway.advertise"] = envAdvertise
	}
	return nil
}

// Builtin is the local site that needs no file: ranks are processes of this machine. Where no home folder is known its
// RuntimeDir is empty, and Resolve refuses every job; Load says so at once.
func Builtin() Site {
	s, _ := builtin()
	return s
}

func builtin() (Site, error) {
	sum := sha256.Sum256(nil)
	s := Site{
		SHA256:    hex.EncodeToString(sum[:]),
		Name:      local,
		Scheduler: local,
		JobPrefix: defaultPrefix,
		Commands:  map[string]string{},
		Gateway:   defaultGateway(local),
		Profiles:  map[string]Profile{"default": localProfile()},
	}
	s.Gateway.Listen = "127.0.0.1:0"
	dir, err := expand(defaultRuntimeDir)
	if err != nil {
		return s, &Error{Msg: "the built-in site's runtime folder: " + err.Msg, Hint: err.Hint}
	}
	s.RuntimeDir = dir
	return s, nil
}

// localProfile is the one profile of a local site that names none.
func localProfile() Profile {
	return Profile{
		Name:            "default",
		Description:     "Processes on this machine",
		Placement:       scheduler.Placement{},
		MaxNodes:        64,
		MaxRanksPerNode: 64,
		Walltime:        defaultWalltime,
		MaxWalltime:     localMaxWalltime,
	}
}

// ProfileNames are the names users can say, sorted.
func (s Site) ProfileNames() []string { return sortedNames(s.Profiles) }
