package step_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/internal/step"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

// published is a job's folders with two outputs, published once.
func published(t *testing.T, change func(*step.PublishSpec)) step.PublishSpec {
	t.Helper()
	dir := t.TempDir()
	spec := step.PublishSpec{
		Workload: "wl_0000000000ff", Epoch: 2, Status: step.Succeeded,
		Workdir: filepath.Join(dir, "work"), Dest: filepath.Join(dir, "results"),
		Ports: map[string][]string{"output": {"out/*.csv", "out/a.csv"}, "all": {"out"}},
	}
	write(t, filepath.Join(spec.Workdir, "out", "a.csv"), "1\n")
	write(t, filepath.Join(spec.Workdir, "out", "deep", "b.csv"), "22\n")
	write(t, filepath.Join(spec.Workdir, "other.txt"), "no output")
	if change != nil {
		change(&spec)
	}
	require.NoError(t, step.Publish(t.Context(), spec))
	return spec
}

func markerOf(t *testing.T, dir string) (m step.Marker) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "__lspo_complete.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &m))
	return m
}

func problems(t *testing.T, dir string) []string {
	t.Helper()
	found, err := step.Verify(dir)
	require.NoError(t, err)
	texts := []string{}
	for _, p := range found {
		texts = append(texts, string(p.Kind)+" "+p.Path)
	}
	return texts
}

func TestPublishedFolderHoldsWhatItsMarkerNames(t *testing.T) {
	spec := published(t, nil)
	m := markerOf(t, spec.Dest)
	require.EqualValues(t, 255, m.ExecutionID)
	require.EqualValues(t, 3, m.Attempt)
	require.EqualValues(t, 1, m.Generation)
	require.Equal(t, spec.Workload, m.Workload)
	require.Nil(t, m.Error)
	require.Equal(t, map[string][]string{"all": {"out/a.csv", "out/deep/b.csv"}, "output": {"out/a.csv"}, "report": {"result.json"}}, m.ProducedPorts)
	require.Empty(t, problems(t, spec.Dest))
	require.NoFileExists(t, filepath.Join(spec.Dest, "other.txt"))
}

// appearing gives the files that appear under their final names below dir from now on, in the kernel's own order.
func appearing(t *testing.T, dir string, folders ...string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	watched := map[int32]string{}
	for _, f := range folders {
		wd, err := unix.InotifyAddWatch(fd, filepath.Join(dir, f), unix.IN_MOVED_TO)
		require.NoError(t, err)
		watched[int32(wd)] = f
	}
	return func() (names []string) {
		events := make([]byte, 64<<10)
		n, err := unix.Read(fd, events)
		require.NoError(t, err)
		for events = events[:n]; len(events) > 0; {
			wd, size := int32(binary.NativeEndian.Uint32(events)), int(binary.NativeEndian.Uint32(events[12:]))
			name := string(bytes.TrimRight(events[unix.SizeofInotifyEvent:][:size], "\x00"))
			names = append(names, filepath.Join(watched[wd], name))
			events = events[unix.SizeofInotifyEvent+size:]
		}
		return names
	}
}

// The marker shows after everything that it names, each time.
func TestCase56MarkerAppearsLast(t *testing.T) {
	spec := published(t, nil)
	appeared := appearing(t, spec.Dest, ".", "out", "out/deep")
	spec.Epoch++
	require.NoError(t, step.Publish(t.Context(), spec))
	require.Equal(t, []string{"out/a.csv", "out/deep/b.csv", "result.json", "__lspo_complete.json"}, appeared())
	require.Len(t, markerOf(t, spec.Dest).Objects, 3)
}

func TestFailedJobPublishesAMarkerThatSaysSo(t *testing.T) {
	spec := published(t, func(s *step.PublishSpec) {
		s.Status, s.ExitCode, s.Error = step.Failed, 3, "rank 2: see https://h/x?sig=secret\n"+strings.Repeat("e", 600)
	})
	m := markerOf(t, spec.Dest)
	require.Equal(t, step.Failed, m.Status)
	require.Equal(t, 3, m.ExitCode)
	require.Len(t, m.Objects, 3)
	require.Len(t, *m.Error, 500)
	require.NotContains(t, *m.Error, "secret")
	require.Equal(t, []string{"not_succeeded "}, problems(t, spec.Dest))
}

func TestVerifySaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   []string
	}{
		"a file is missing": {func(t *testing.T, d string) { require.NoError(t, os.Remove(filepath.Join(d, "out/a.csv"))) }, []string{"missing out/a.csv"}},
		"another size":      {func(t *testing.T, d string) { write(t, filepath.Join(d, "out/a.csv"), "longer") }, []string{"changed out/a.csv"}},
		"another byte":      {func(t *testing.T, d string) { write(t, filepath.Join(d, "out/a.csv"), "2\n") }, []string{"changed out/a.csv"}},
		"a link in its place": {func(t *testing.T, d string) {
			p := filepath.Join(d, "out/a.csv")
			require.NoError(t, os.Rename(p, d+"/../a.csv"))
			require.NoError(t, os.Symlink(d+"/../a.csv", p))
		}, []string{"changed out/a.csv"}},
		"an extra file":       {func(t *testing.T, d string) { write(t, filepath.Join(d, "new/x"), "") }, []string{"extra new/x"}},
		"a leftover":          {func(t *testing.T, d string) { write(t, filepath.Join(d, "out/a.csv.partial"), "") }, []string{"extra out/a.csv.partial"}},
		"no marker":           {func(t *testing.T, d string) { require.NoError(t, os.Remove(filepath.Join(d, "__lspo_complete.json"))) }, []string{"no_marker "}},
		"a marker of rubbish": {func(t *testing.T, d string) { write(t, filepath.Join(d, "__lspo_complete.json"), "{") }, []string{"bad_marker __lspo_complete.json"}},
		"a marker that climbs": {func(t *testing.T, d string) {
			write(t, filepath.Join(d, "__lspo_complete.json"), `{"schema_version":1,"status":"succeeded","objects":[{"relpath":"../x","sha256":"`+strings.Repeat("0", 64)+`","size":1}]}`)
		}, []string{"bad_marker __lspo_complete.json"}},
		"a marker of version 2": {func(t *testing.T, d string) {
			write(t, filepath.Join(d, "__lspo_complete.json"), `{"schema_version":2}`)
		}, []string{"bad_marker __lspo_complete.json"}},
		"a port beyond objects": {func(t *testing.T, d string) {
			write(t, filepath.Join(d, "__lspo_complete.json"), `{"schema_version":1,"status":"succeeded","produced_ports":{"p":["x"]}}`)
		}, []string{"bad_marker __lspo_complete.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := published(t, nil)
			c.damage(t, spec.Dest)
			require.Equal(t, c.want, problems(t, spec.Dest))
		})
	}
	_, err := step.Verify(filepath.Join(t.TempDir(), "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestPublishingAgainReplacesWhatTheEarlierMarkerNamed(t *testing.T) {
	spec := published(t, nil)
	write(t, filepath.Join(spec.Dest, "theirs.txt"), "not ours")
	require.NoError(t, os.RemoveAll(filepath.Join(spec.Workdir, "out", "deep")))
	write(t, filepath.Join(spec.Workdir, "out", "a.csv"), "new\n")
	spec.Epoch = 3
	require.NoError(t, step.Publish(t.Context(), spec))
	require.EqualValues(t, 4, markerOf(t, spec.Dest).Attempt)
	require.Equal(t, []string{"extra theirs.txt"}, problems(t, spec.Dest), "what no marker named is left alone")
}

func TestPublishThatFailsLeavesNoMarker(t *testing.T) {
	spec := published(t, nil)
	spec.Epoch++
	write(t, filepath.Join(spec.Workdir, "out", "back\\slash.csv"), "x")
	require.ErrorContains(t, step.Publish(t.Context(), spec), "backslash")
	require.Equal(t, []string{"no_marker "}, problems(t, spec.Dest), "not even the earlier one")

	spec = published(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, step.Publish(ctx, spec), context.Canceled)
	require.Equal(t, []string{"no_marker "}, problems(t, spec.Dest))
}

func TestPublishKeepsTheContractsNamesForItself(t *testing.T) {
	spec := published(t, func(s *step.PublishSpec) {
		write(t, filepath.Join(s.Workdir, "result.json"), "theirs")
		write(t, filepath.Join(s.Workdir, "__lspo_complete.json"), "theirs")
		s.Ports = map[string][]string{"output": {"*.json"}}
	})
	require.Equal(t, []string{"output/__lspo_complete.json", "output/result.json"}, markerOf(t, spec.Dest).ProducedPorts["output"])
	require.Empty(t, problems(t, spec.Dest))
}

func TestPublishIntoTheWorkdirDoesNotPublishItself(t *testing.T) {
	spec := published(t, func(s *step.PublishSpec) {
		s.Dest = filepath.Join(s.Workdir, "published")
		s.Ports = map[string][]string{"output": {"**"}}
	})
	require.NoError(t, step.Publish(t.Context(), spec))
	require.Equal(t, []string{"other.txt", "out/a.csv", "out/deep/b.csv"}, markerOf(t, spec.Dest).ProducedPorts["output"])
	require.Empty(t, problems(t, spec.Dest))
	spec.Dest = spec.Workdir
	require.ErrorContains(t, step.Publish(t.Context(), spec), "[outputs] publish")
}

func TestPublishRefusesWhatIsNoWorkload(t *testing.T) {
	for _, id := range []string{"", "wl_", "wl_12", "alloc_0000000000ff", "wl_0000000000fg", "wl_000000000000", "wl_+00000000001"} {
		require.ErrorContains(t, step.Publish(t.Context(), step.PublishSpec{Workload: id, Dest: t.TempDir(), Workdir: t.TempDir()}), "workload id", id)
	}
}

func TestPinAndCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.csv")
	write(t, path, strings.Repeat("row\n", 1<<20))
	var last, total int64
	calls := 0
	sha, size, err := step.Pin(t.Context(), path, func(d, n int64) { require.Greater(t, d, last); last, total, calls = d, n, calls+1 })
	require.NoError(t, err)
	require.EqualValues(t, 4<<20, size)
	require.Equal(t, [2]int64{size, size}, [2]int64{last, total})
	require.Greater(t, calls, 2)
	pinned := step.Pinned{Name: "data/rows.csv", Path: path, SHA256: sha, Size: size}
	require.NoError(t, step.Check(t.Context(), []step.Pinned{pinned}))

	write(t, path, "other")
	err = step.Check(t.Context(), []step.Pinned{pinned})
	require.ErrorIs(t, err, step.ErrChanged)
	other, _, err2 := step.Pin(t.Context(), path, nil)
	require.NoError(t, err2)
	for _, text := range []string{"data/rows.csv", "hashes to " + other, "the job pinned " + sha} {
		require.ErrorContains(t, err, text)
	}
	require.NoError(t, os.Remove(path))
	err = step.Check(t.Context(), []step.Pinned{pinned})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, step.ErrChanged)
}

func TestPinRefusesAFolderAndEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	_, _, err := step.Pin(t.Context(), dir, nil)
	require.ErrorContains(t, err, "not a regular file")
	write(t, filepath.Join(dir, "a"), "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = step.Pin(ctx, filepath.Join(dir, "a"), nil)
	require.ErrorIs(t, err, context.Canceled)
}
