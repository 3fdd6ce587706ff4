package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkAgent starts the real static agent: the time until its hello was read by a gateway on this machine, and the
// memory of the parked rank. Beside it, in the same run, the time that a program takes that does nothing.
func BenchmarkAgent(b *testing.B) {
	program := filepath.Join(b.TempDir(), "openai4s-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/openai4s/hpc/cmd/openai4s-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	var hello, nothing time.Duration
	var memory, rounds int64
	for b.Loop() {
		f := newFake(b, 1)
		began := time.Now()
		require.NoError(b, exec.Command(program, "--version").Run())
		nothing += time.Since(began)
		cmd := exec.Command(program, "--bundle", f.bundle(), "--epoch", "0", "--rank", "0", "--job", "77", "--host", "n1")
		began = time.Now()
		require.NoError(b, cmd.Start())
		p := f.joined()
		hello += time.Since(began)
		p.ready()
		memory += residentOf(b, cmd.Process.Pid)
		rounds++
		require.NoError(b, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	n := float64(rounds)
	b.ReportMetric(float64(hello.Microseconds())/n/1000, "ms/start-to-hello")
	b.ReportMetric(float64(nothing.Microseconds())/n/1000, "ms/start-to-version")
	b.ReportMetric(float64(memory)/n/1000, "MB")
	b.ReportMetric(0, "ns/op")
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// residentOf is a process's resident memory in kB.
func residentOf(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	require.NoError(b, err)
	m := resident.FindSubmatch(text)
	require.NotNil(b, m, "%s", text)
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	require.NoError(b, err)
	return n
}
