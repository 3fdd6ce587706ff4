// Package rig runs the real programs for end-to-end tests: a site file, the daemon under its own user, the command
// line as unprivileged users, and at the end a search for anything that was left behind. It knows the programs by
// what they print and leave alone; it imports none of their packages.
//
// Every rig lives in one folder of its own. Its path stands in the site file, the users' homes and so in the
// environment of everything that runs for it, which is how leftovers are found.
package rig

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
)

// Options of a rig.
type Options struct {
	// Cluster runs the jobs; nil: the local System of this machine. With a cluster the daemon runs as its service
	// user and the command line as o4s-alice and o4s-bob; without one everything runs as whoever runs the test.
	Cluster *cluster.Cluster

	// PBS runs the jobs instead, a fake one. The users are those of a cluster where the test is run as root, else
	// whoever runs it.
	PBS *lab.Lab

	// Site, Gateway and Profiles are further lines of the site file: below [site], below [gateway], and the profile
	// tables. The default profile is called default and takes 4 nodes of 4 ranks each.
	Site, Gateway, Profiles string

	// Host is the loopback address that the daemon listens on, "127.0.0.1" where it isn't said. Advertise is what the
	// ranks are told to dial; %s in it is the port. Nothing said: the listener's own address.
	Host      string
	Advertise []string

	// Remote: commands reach the daemon by TCP with TLS and the cluster's MUNGE, and the site file holds the daemon's
	// pin as an administrator writes it there.
	Remote bool

	// SiblingAgent: the site names no agent, so that the command line copies the one beside it.
	SiblingAgent bool

	// Embedded: the site names no gateway, there is no daemon, and the command line serves its own.
	Embedded bool

	// Scheduler overrides what the site file names: "slurm" with a cluster, "pbs" with a PBS, else "local".
	Scheduler string

	// Agent is a program that stands for the agent; "": the real one.
	Agent string

	// Env is added to the environment of the daemon and of the users, "NAME=value".
	Env []string

	// Path is put before the users' and the daemon's PATH.
	Path string
}

// Rig is one site that is up, and who uses it.
type Rig struct {
	Dir    string // everything of this rig, readable by all
	Site   string // path of the site file
	Port   int    // the agents' listener
	Remote int    // control over TCP; 0: there is none
	Daemon *Daemon

	options  Options
	users    map[string]*User
	programs string
	jobs     int      // job files written
	munge    []string // of the cluster: munge and unmunge
	pin      string   // of the daemon's key, once it has one
}

const defaultProfile = `
[profiles.default]
%s
max_nodes = 4
max_ranks_per_node = 4
walltime = "5m"
max_walltime = "1h"
`

// New makes a rig and starts its daemon, unless it is an embedded one. When the test ends, the daemon is stopped,
// and the test fails if anything of the rig is still there.
func New(t testing.TB, o Options) *Rig {
	t.Helper()
	r := &Rig{options: o, users: map[string]*User{}, programs: Programs(t)}
	var err error
	if r.Dir, err = os.MkdirTemp("/tmp", "o4s-rig-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(r.Dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(r.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.Port = freePort(t)
	if o.Remote {
		r.Remote = freePort(t)
		munge, unmunge := cluster.MungeCommands(t, r.Dir, o.Cluster.MungeSocket())
		r.munge = []string{munge, unmunge}
	}
	r.Site = filepath.Join(r.Dir, "site.toml")
	r.writeSite(t)
	t.Cleanup(func() { r.requireNothingLeft(t) })
	t.Cleanup(func() {
		if t.Failed() {
			r.dump(t)
		}
	})
	if !o.Embedded {
		r.Daemon = newDaemon(t, r)
		r.Daemon.Start(t)
	}
	if o.Remote {
		r.pin = r.Daemon.Pin(t)
		r.writeSite(t)
	}
	return r
}

func (r *Rig) writeSite(t testing.TB) {
	t.Helper()
	if err := os.WriteFile(r.Site, []byte(r.siteFile()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *Rig) scheduler() string {
	switch {
	case r.options.Scheduler != "":
		return r.options.Scheduler
	case r.options.Cluster != nil:
		return "slurm"
	case r.options.PBS != nil:
		return "pbs"
	}
	return "local"
}

// siteFile is the site's text.
func (r *Rig) siteFile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[site]\nname = \"lab\"\nscheduler = %q\n%s\n", r.scheduler(), r.options.Site)
	if r.options.Remote {
		fmt.Fprintf(&b, "commands = { munge = %q, unmunge = %q }\n", r.munge[0], r.munge[1])
	}
	if !r.options.SiblingAgent {
		fmt.Fprintf(&b, "agent = %q\n", r.agent())
	}
	if !r.options.Embedded {
		fmt.Fprintf(&b, "\n[gateway]\nlisten = %q\nadvertise = [%s]\ncontrol = %q\nstate_dir = %q\n%s\n",
			r.listen(), r.advertise(), r.named(), r.State(), r.options.Gateway)
		if r.pin != "" {
			fmt.Fprintf(&b, "control_pins = [%q]\n", r.pin)
		}
	}
	if r.options.Profiles != "" {
		b.WriteString("\n" + r.options.Profiles)
	} else {
		placement := ""
		switch r.scheduler() {
		case "slurm":
			placement = `partition = "main"`
		case "pbs":
			placement = `queue = "workq"`
		}
		fmt.Fprintf(&b, defaultProfile, placement)
	}
	return b.String()
}

func (r *Rig) agent() string {
	if r.options.Agent != "" {
		return r.options.Agent
	}
	return r.Program("openai4s-agent")
}

func (r *Rig) listen() string {
	host := r.options.Host
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(r.Port))
}

func (r *Rig) advertise() string {
	told := r.options.Advertise
	if len(told) == 0 {
		told = []string{r.listen()}
	}
	quoted := make([]string, len(told))
	for i, a := range told {
		quoted[i] = strconv.Quote(strings.ReplaceAll(a, "%s", strconv.Itoa(r.Port)))
	}
	return strings.Join(quoted, ", ")
}

// Program is the path of one of the built programs.
func (r *Rig) Program(name string) string { return filepath.Join(r.programs, name) }

// State is the daemon's state folder.
func (r *Rig) State() string { return filepath.Join(r.Dir, "gateway", "state") }

// named is what the site file calls control.
func (r *Rig) named() string {
	if r.options.Remote {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Remote))
	}
	return r.control()
}

// control is the daemon's socket.
func (r *Rig) control() string {
	if r.options.Remote {
		return filepath.Join(r.State(), "control.sock")
	}
	return filepath.Join(r.Dir, "gateway", "control.sock")
}

// Conf is the cluster's configuration file, or "".
func (r *Rig) Conf() string {
	if r.options.Cluster == nil {
		return ""
	}
	return r.options.Cluster.Conf
}

// Name is the folder's own name: short, unique and free of characters that need quoting.
func (r *Rig) Name() string { return filepath.Base(r.Dir) }
