// Package step_test runs openai4s-agent step as a separate process against a strict object store of its own: each
// rule of the external step's contract is a test here.
package step_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// agent is the program under test.
var agent string

func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait for a bound of the contract and need no processor meanwhile.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

// run builds the agent as it is released: static. OPENAI4S_AGENT names one that was built already.
func run(m *testing.M) int {
	if agent = os.Getenv("OPENAI4S_AGENT"); agent != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "step-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agent = filepath.Join(dir, "openai4s-agent")
	build := exec.Command("go", "build", "-o", agent, "github.com/openai4s/hpc/cmd/openai4s-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the agent: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
