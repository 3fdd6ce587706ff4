package pbs

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"github.com/openai4s/hpc/scheduler"
)

// oldest supported major version: the first with the JSON forms and job attributes relied on here.
const oldest = 19

var (
	// "pbs_version = 23.06.06", "pbs_version = PBSPro_13.1.0.160576", `"pbs_version":	"2020.1.2"`
	pbsVersion = regexp.MustCompile(`pbs_version"?\s*[=:]\s*"?(?:PBSPro_)?(([0-9]+)[0-9A-Za-z._-]*)`)
	// Torque: "Version: 6.1.2" and a commit, or "version: 2.5.13"
	torqueVersion = regexp.MustCompile(`(?mi)^\s*version:\s*([0-9][0-9A-Za-z._-]*)`)
)

// versionCheck remembers a version that was good. A refusal is asked again: a login node may be repaired.
type versionCheck struct {
	mu   sync.Mutex
	good string
}

// supported returns the version of the PBS commands, ErrUnsupported where they are Torque's or too old to be read
// rightly, and ErrNoAnswer where that can't be told. Torque takes many of the same options and means other things.
func (s *System) supported(ctx context.Context) (string, error) {
	s.version.mu.Lock()
	defer s.version.mu.Unlock()
	if s.version.good != "" {
		return s.version.good, nil
	}
	res, err := s.ask(ctx, "qstat", "--version")
	if err != nil {
		return "", fmt.Errorf("asking qstat for its version: %w", err)
	}
	text := string(res.stdout) + "\n" + string(res.stderr)
	version, err := judgeVersion(text)
	if version == "" && err == nil { // a wrapper that doesn't pass the option on
		if res, err = s.ask(ctx, "qstat", "-B", "-f", "-F", "json"); err != nil {
			return "", fmt.Errorf("asking the server for its version: %w", err)
		}
		version, err = judgeVersion(string(res.stdout))
		if version == "" && err == nil {
			return "", fmt.Errorf("finding out which PBS this is (needs PBS Pro %d or OpenPBS): %w", oldest, res.failure())
		}
	}
	if err != nil {
		return "", err
	}
	s.version.good = version
	return version, nil
}

// judgeVersion reads a version from what a command printed: "" and nil where none is to be seen.
func judgeVersion(text string) (string, error) {
	if m := pbsVersion.FindStringSubmatch(text); m != nil {
		if major, err := strconv.Atoi(m[2]); err != nil || major < oldest {
			return "", fmt.Errorf("%w: needs PBS Pro %d or OpenPBS, this is PBS %s", scheduler.ErrUnsupported, oldest, oneLine(m[1]))
		}
		return m[1], nil
	}
	if m := torqueVersion.FindStringSubmatch(text); m != nil {
		return "", fmt.Errorf("%w: needs PBS Pro %d or OpenPBS, this is Torque %s", scheduler.ErrUnsupported, oldest, oneLine(m[1]))
	}
	return "", nil
}
