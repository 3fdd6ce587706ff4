package rig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// ProgramsVariable names a folder with the three programs ready made, for machines without Go.
const ProgramsVariable = "OPENAI4S_TEST_PROGRAMS"

// built builds the programs once a process, into a folder that every user can read; Main removes it.
var built = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(ProgramsVariable); dir != "" {
		return dir, nil
	}
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", fmt.Errorf("the module's folder isn't known to a test built with -trimpath: name the programs' folder by %s", ProgramsVariable)
	}
	dir, err := os.MkdirTemp("/tmp", "o4s-programs-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "./cmd/openai4s", "./cmd/openai4s-agent", "./cmd/openai4s-gateway")
	build.Dir = filepath.Dir(filepath.Dir(filepath.Dir(file)))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	var text bytes.Buffer
	build.Stdout, build.Stderr = &text, &text
	if err := build.Run(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("building the programs: %w\n%s", err, text.String())
	}
	return dir, nil
})

// Programs is the folder of the built programs: openai4s, openai4s-agent, openai4s-gateway.
func Programs(t testing.TB) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
