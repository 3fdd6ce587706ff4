package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/openai4s/hpc/tests/fakeslurm"
)

var update = flag.Bool("update", false, "write what the scripts compare with")

// programs is the folder that TestMain builds the real programs into: jobs outlive the command that started them and
// start it again, which a test binary can't stand in for.
var programs string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "openai4s")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir+"/", "../openai4s", "../openai4s-agent", "../openai4s-gateway")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the programs: %v\n%s", err, out)
		return 1
	}
	programs = dir
	return fakeslurm.Run(m)
}

// shortDir is a folder whose name leaves room for a socket's.
func shortDir(t interface {
	Fatal(...any)
	Cleanup(func())
}) string {
	dir, err := os.MkdirTemp("/tmp", "o4s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// environment is what the programs see: a home of their own, no site file and no variable of ours from outside.
func environment(home string) []string {
	return []string{
		"HOME=" + home,
		"XDG_STATE_HOME=" + filepath.Join(home, "state"),
		"PATH=" + programs + ":/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"LC_ALL=C",
		"TZ=UTC",
	}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			home := shortDir(e.T().(interface {
				Fatal(...any)
				Cleanup(func())
			}))
			for _, v := range environment(home) {
				name, value, _ := strings.Cut(v, "=")
				e.Setenv(name, value)
			}
			e.Setenv("EXAMPLES", mustAbs("../../examples"))
			e.Setenv("PROGRAMS", programs)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"empty": empty,
			"id":    id,
		},
	})
}

func mustAbs(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return abs
}

// exits CODE COMMAND… runs a command that must end with exactly this code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("running %s: %v", args[1], err)
		}
		got = fmt.Sprint(exit.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s\nstdout: %sstderr: %s", got, args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// empty FILE… holds that each file, or stdout or stderr, has no byte in it.
func empty(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		text := ts.ReadFile(name)
		if neg == (text == "") {
			ts.Fatalf("%s: %q", name, text)
		}
	}
}

var workloadID = regexp.MustCompile(`wl_[0-9a-f]{12}`)

// id NAME sets a variable to the first workload's id in the last command's stdout, or else its stderr.
func id(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: id NAME")
	}
	found := workloadID.FindString(ts.ReadFile("stdout") + ts.ReadFile("stderr"))
	if found == "" {
		ts.Fatalf("no workload's id in the last output")
	}
	ts.Setenv(args[0], found)
}
