//go:build live

package pbs_test

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
	"github.com/openai4s/hpc/scheduler/pbs"
	"github.com/openai4s/hpc/scheduler/schedulertest"
)

// What a site says of itself; docs/testing-on-pbs.md explains each.
const (
	dirVariable     = "OPENAI4S_PBS_DIR"
	queueVariable   = "OPENAI4S_PBS_QUEUE"
	accountVariable = "OPENAI4S_PBS_ACCOUNT"
	projectVariable = "OPENAI4S_PBS_PROJECT"
	extraVariable   = "OPENAI4S_PBS_SELECT_EXTRA"
)

func runAll(m *testing.M) int { return m.Run() }

// shared is a folder that login and compute nodes see under one name.
func shared() string {
	if dir := os.Getenv(dirVariable); dir != "" {
		return dir
	}
	dir, err := os.UserHomeDir()
	if err != nil {
		panic(err)
	}
	return dir
}

// home is the user's own: the hosts' login shells look there too.
func home(string) string { return os.Getenv("HOME") }

type realPBS struct{}

func (realPBS) path() string            { return os.Getenv("PATH") }
func (realPBS) gateway() string         { return "" }
func (realPBS) user(*testing.T) account { return account{name: os.Getenv("USER")} }
func (realPBS) patience() time.Duration { return 10 * time.Minute }

func (realPBS) profile() string {
	text := "max_nodes = 4\nmax_ranks_per_node = 2\nwalltime = \"10m\"\n"
	for key, variable := range map[string]string{"queue": queueVariable, "account": accountVariable, "project": projectVariable, "select_extra": extraVariable} {
		if value := os.Getenv(variable); value != "" {
			text += fmt.Sprintf("%s = %q\n", key, value)
		}
	}
	return text
}

func newCluster(*testing.T) cluster { return realPBS{} }

// serverFiles are not ours to read.
func serverFiles(w *world) places { return tree(w.t, filepath.Join(w.dir, "run")).scripts() }

// toOthers is what somebody else is shown, whom a real site doesn't lend to a test.
func toOthers(*world, places, string) {}

// scripts are the batch scripts that submit keeps in RUN.
func (p places) scripts() places {
	kept := places{}
	for name, text := range p {
		if filepath.Ext(name) != ".bundle" {
			kept[name] = text
		}
	}
	return kept
}

// TestSuite holds the System to its contract on the real server.
func TestSuite(t *testing.T) {
	me, err := user.Current()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(shared(), "o4s-suite")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	submission := func(_ *testing.T, j schedulertest.Job) scheduler.Submission {
		wall := "00:10:00"
		if j.Walltime > 0 {
			wall = fmt.Sprintf("00:00:%02d", int(j.Walltime/time.Second))
		}
		args := []string{"-f", "-N", j.Name, "-l", "select=1:ncpus=1", "-l", "place=scatter", "-l", "walltime=" + wall,
			"-j", "oe", "-koed", "-o", filepath.Join(dir, j.Name), "-r", "n", "-m", "n", "-S", "/bin/sh"}
		for option, variable := range map[string]string{"-q": queueVariable, "-A": accountVariable, "-P": projectVariable} {
			if value := os.Getenv(variable); value != "" {
				args = append(args, option, value)
			}
		}
		return scheduler.Submission{Name: j.Name, Args: args, Script: j.Script()}
	}
	schedulertest.Run(t, schedulertest.Harness{
		System:     pbs.New(nil),
		Submission: submission,
		Identity: func(name string) scheduler.Identity {
			return scheduler.Identity{UID: os.Getuid(), User: me.Username, Name: name}
		},
		Unknown: scheduler.JobID{ID: "9999998"},
		Rejected: func(t *testing.T) scheduler.Submission {
			s := submission(t, schedulertest.Job{Name: "openai4s-refused-0123456789ab"})
			s.Args = append(s.Args, "-l", "nosuchresource=1")
			return s
		},
		Walltime: 5 * time.Second,
		Patience: 5 * time.Minute,
		Every:    time.Second,
	})
}
