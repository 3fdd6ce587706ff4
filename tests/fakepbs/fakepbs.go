// Package fakepbs is a PBS that needs no installation: qsub, qstat, qselect, qdel, pbsnodes, pbs_tmrsh and pbsdsh as
// one program, and the server behind them, which runs the jobs' processes for real on this machine. Output forms,
// exit codes, delays and traps are those of recorded OpenPBS 23.06 answers; a test compares the two field by field.
//
// Hosts are names: all of a cluster's processes run here. A host can be lost, with everything that runs on it and
// without anybody being told, as when a node loses its power.
package fakepbs

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Commands are the names that the program answers to.
var Commands = []string{"qsub", "qstat", "qselect", "qdel", "pbsnodes", "pbs_tmrsh", "pbsdsh"}

// ServerCommand is the program's name for the server; its argument is the cluster's folder.
const ServerCommand = "fakepbs-server"

// serverHost is the host of the server and of every submission.
const serverHost = "pbshead"

// Manager of the server: nobody who runs tests.
const Manager = "pbsadmin"

// arch of every host.
const arch = "linux"

// version of the commands and of the server.
const version = "23.06.06"

// Config of a cluster. It can be changed while it runs.
type Config struct {
	Hosts []string // names of the execution hosts
	CPUs  int      // of each
	GPUs  int
	MemKB int64

	History     bool // job_history_enable
	HideOthers  bool // query_other_jobs is off
	ReverseFile bool // node files list the hosts in reverse order

	KillDelay       time.Duration // between TERM and KILL
	NodeFailRequeue time.Duration // until a lost first node is noticed
	EndDelay        time.Duration // in state E
	RetryDelay      time.Duration // between attempts to start a job

	SchedulingOff bool // jobs wait, and nobody says why

	Down        bool          // the server's port refuses connections
	Stall       time.Duration // a server that swallows packets: how long commands block before they say so; 0: it doesn't
	SubmitDelay time.Duration // qsub prints the id late
	LoseAnswer  bool          // qsub makes the job and then hangs for ever
	HookReject  string        // a hook refuses every job with this text
	Torque      bool          // the commands are Torque's
	Version     string        // that --version tells, "" for that of the records
	PauseQstat  bool          // qstat sleeps 200 ms if asked less than a second ago
}

// Default is a cluster of four hosts like the recorded one, with delays cut short.
func Default() Config {
	return Config{
		Hosts: []string{"n1", "n2", "n3", "n4"}, CPUs: 4, GPUs: 2, MemKB: 24683620, History: true,
		KillDelay: 10 * time.Second, NodeFailRequeue: 500 * time.Millisecond, EndDelay: 50 * time.Millisecond, RetryDelay: 5 * time.Millisecond,
	}
}

// queue of the cluster.
type queue struct {
	name              string
	maxWall, defWall  time.Duration
	disabled, stopped bool
	forbidden         bool
	maxQueued         int
}

var queues = []queue{
	{name: "workq"},
	{name: "short", maxWall: 10 * time.Minute, defWall: 5 * time.Minute},
	{name: "limited", maxQueued: 1},
	{name: "disabled", disabled: true},
	{name: "acl", forbidden: true},
	{name: "stopped", stopped: true},
}

func queueNamed(name string) (queue, bool) {
	for _, q := range queues {
		if q.name == name {
			return q, true
		}
	}
	return queue{}, false
}

// ProgramSuffix is added to the program's name where a shell script has the command's own.
const ProgramSuffix = ".program"

// deafVariable says that the command was started with TERM ignored, which a program of Go can't see by itself: its
// runtime takes the signal over.
const deafVariable = "FAKEPBS_DEAF"

// Remote is the script in front of pbs_tmrsh. Like any C program, and unlike one of Go, it stays deaf to TERM where it
// was started so.
const Remote = `#!/bin/sh
while read -r name value; do
	test "$name" != SigIgn: || case $value in *[4567cdef]???) ` + deafVariable + `=1; export ` + deafVariable + ` ;; esac
done </proc/$$/status
exec "$0` + ProgramSuffix + `" "$@"
`

// Main runs the program under the name it was called by and returns its exit code. The cluster's folder is the
// parent of the one the program lies in.
func Main(name string, args []string) int {
	if filepath.Base(name) == ServerCommand {
		return serve(args)
	}
	self, err := os.Executable()
	if err != nil {
		return fault(err)
	}
	if os.Getenv(deafVariable) != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	return call(filepath.Dir(filepath.Dir(self)), strings.TrimSuffix(filepath.Base(name), ProgramSuffix), args)
}

func fault(err error) int {
	os.Stderr.WriteString("fakepbs: " + err.Error() + "\n")
	return 99
}
