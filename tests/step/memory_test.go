package step_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	memoryLimit = 64 << 20
	gigabyte    = 1 << 30
)

// block is what the big object repeats.
var block = func() []byte {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}()

func bigContent(size int64) content {
	return content{size: size, read: func(w io.Writer) error {
		for left := size; left > 0; left -= int64(len(block)) {
			if _, err := w.Write(block[:min(left, int64(len(block)))]); err != nil {
				return err
			}
		}
		return nil
	}}
}

// confine runs the program in a memory cgroup of version 1 and gives the peak it reached, cached pages included.
// Where that can't be made, ok is false.
func confine(t *testing.T, j *job) (peak func() int64, ok bool) {
	dir := fmt.Sprintf("/sys/fs/cgroup/memory/step-test-%d", os.Getpid())
	if os.Getuid() != 0 || os.Mkdir(dir, 0o755) != nil {
		return nil, false
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	write := func(name string, n int64) bool {
		return os.WriteFile(filepath.Join(dir, name), []byte(strconv.FormatInt(n, 10)), 0o644) == nil
	}
	if !write("memory.limit_in_bytes", memoryLimit) {
		return nil, false
	}
	_ = write("memory.memsw.limit_in_bytes", memoryLimit) // no swap, where it is accounted
	j.wrap = []string{"sh", "-c", "echo $$ > " + dir + "/cgroup.procs && exec \"$@\"", "sh"}
	return func() int64 {
		text, err := os.ReadFile(filepath.Join(dir, "memory.max_usage_in_bytes"))
		require.NoError(t, err)
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		require.NoError(t, err)
		return n
	}, true
}

// highWater gives the most memory of its own a running process had.
func highWater(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

func TestOneGiBMovesInUnder64MiB(t *testing.T) {
	hash := sha256.New()
	require.NoError(t, bigContent(gigabyte).read(hash))
	j := newJob(t, in{name: "big", pin: doc{"relpath": "huge.big", "size": gigabyte, "sha256": hex.EncodeToString(hash.Sum(nil))}})
	j.store.objects["big"] = bigContent(gigabyte)
	peak, confined := confine(t, j)
	// The scratch file must lie on a disk: pages of a tmpfs are memory.
	j.start()
	var own int64
	require.Eventually(t, func() bool {
		own = max(own, highWater(j.cmd.Process.Pid))
		return len(j.store.requests("upload")) == 3
	}, 90*time.Second, 20*time.Millisecond, "stderr:\n%s", &j.stderr)
	require.Equal(t, 0, j.wait(30*time.Second), j.output())
	require.NotZero(t, own)
	require.Less(t, own, int64(memoryLimit), "VmHWM")
	if confined {
		// Cached pages count too: kept, they would fill the group to its limit.
		require.Less(t, peak(), int64(memoryLimit*3/4))
		t.Logf("peak of the cgroup %d KiB, VmHWM %d KiB, %s", peak()>>10, own>>10, j.elapsed.Round(time.Millisecond))
	} else {
		t.Logf("no cgroup of version 1 here; VmHWM %d KiB, %s", own>>10, j.elapsed.Round(time.Millisecond))
	}
	m := j.marker()
	require.Equal(t, "succeeded", m["status"])
	require.EqualValues(t, gigabyte, m["objects"].([]any)[0].(doc)["size"])
}
