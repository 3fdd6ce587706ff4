package step_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// promptly is what the conformance suite allows from the signal to the end; ours is at once, and the marker's way.
const promptly = 5 * time.Second

func requireNoReport(t *testing.T, j *job) {
	t.Helper()
	require.Contains(t, j.output(), "no result.json for this run")
	require.NotContains(t, j.store.requests("upload"), "result.json")
}

func TestStopWhileTheInvocationIsNotAnswered(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.faults = []fault{on("manifest", 1, never)}
	j.start().store.await("manifest", 1)
	j.stop(promptly)
	requireNoReport(t, j)
	require.Empty(t, j.store.requests("input"))
	require.EqualValues(t, 7, j.marker()["execution_id"])
}

func TestStopWhileWaitingForAFirstByte(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"}, in{name: "c", data: "3"})
			j.store.faults = []fault{on("input", 2, never)}
			j.start().store.await("input", 2)
			began := time.Now()
			j.signal(s)
			require.Equal(t, 20, j.wait(promptly))
			require.Less(t, time.Since(began), promptly)
			require.Equal(t, "cancelled", j.marker()["status"])
			requireNoReport(t, j)
			require.Equal(t, []string{"outputs/a"}, j.objects(), "what was begun")
			require.NotContains(t, j.store.requests("input"), "c", "no new input")
		})
	}
}

func TestStopInTheMiddleOfABody(t *testing.T) {
	t.Parallel()
	const sent, promised = 16 << 20, 64 << 20
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2", pin: doc{"size": promised}})
	inBody := make(chan struct{})
	j.store.faults = []fault{on("input", 2, func(s *store, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", fmt.Sprint(promised))
		_, _ = w.Write(make([]byte, sent)) // more than any socket holds: it is being read
		_ = http.NewResponseController(w).Flush()
		close(inBody)
		<-s.gone
		return true
	})}
	j.start()
	<-inBody
	j.stop(promptly)
	require.Equal(t, []string{"outputs/a"}, j.objects())
	requireNoReport(t, j)
	requireNoScratch(t, j)
}

func TestStopWhileABodyDribbles(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: strings.Repeat("x", 1000)})
	j.store.faults = []fault{on("input", 1, dribble("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", 100*time.Millisecond))}
	j.start().store.await("input", 1)
	j.stop(promptly)
	require.Empty(t, j.objects())
}

func TestStopWhileWaitingForAnUploadsAnswer(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"}, in{name: "c", data: "3"})
	j.store.faults = []fault{on("upload", 2, hold(2*time.Second))} // it lands, and nobody hears of it
	j.start().store.await("upload", 2)
	j.stop(promptly)
	require.Equal(t, []string{"outputs/a", "outputs/b"}, j.objects(), "begun uploads are named")
	require.Equal(t, []string{"a", "b"}, j.store.requests("input"), "nothing was fetched ahead")
	requireNoReport(t, j)
}

func TestStopWhileTheStoreDoesNotTakeAnUpload(t *testing.T) {
	t.Parallel()
	deafStore := newStall(t, 0, "")
	j := newJob(t, in{name: "a", data: strings.Repeat("x", 32<<20)})
	j.envelope = doc{"staging": doc{"mode": "presigned_post", "post": doc{"url": "http://" + deafStore.addr() + "/post?tok=signature-for-9",
		"key_prefix": prefix, "fields": orderedFields(j.store.formFields(1))}}}
	j.start()
	require.Contains(t, deafStore.await(t), "POST /post")
	j.envelope = nil // the marker's reload finds a store that hears
	j.rotate(time.Hour)
	j.stop(promptly)
	require.Equal(t, []string{"outputs/a"}, j.objects())
}

func TestStopDuringTheHandshakeOfTLS(t *testing.T) {
	t.Parallel()
	silent := newStall(t, 0, "")
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2", url: "https://" + silent.addr() + "/b?tok=signature-for-1"})
	j.start()
	require.NotEmpty(t, silent.await(t), "a hello came")
	j.stop(promptly)
	require.Equal(t, []string{"outputs/a"}, j.objects())
}

func TestStopDuringAProxysConnect(t *testing.T) {
	t.Parallel()
	proxy := newStall(t, 0, "")
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2", url: "https://unreachable.example/b?tok=signature-for-1"})
	j.env = []string{"HTTPS_PROXY=http://user:passw0rdofproxy@" + proxy.addr()}
	j.secrets = []string{"passw0rdofproxy"}
	j.start()
	require.Equal(t, "CONNECT unreachable.example:443 HTTP/1.1", proxy.await(t))
	j.stop(promptly)
	require.Equal(t, []string{"outputs/a"}, j.objects())
}

func TestStopDuringTheHandshakeBehindAProxy(t *testing.T) {
	t.Parallel()
	proxy := newStall(t, 0, "HTTP/1.1 200 Connection established\r\n\r\n")
	j := newJob(t, in{name: "b", data: "2", url: "https://unreachable.example/b?tok=signature-for-1"})
	j.env = []string{"https_proxy=" + proxy.addr()}
	j.start()
	proxy.await(t)
	j.stop(promptly)
}

func TestStopDuringAConnect(t *testing.T) {
	t.Parallel()
	addr, waiting := deaf(t, [4]byte{127, 0, 0, 1}, 0)
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2", url: "http://" + addr + "/b?tok=signature-for-1"})
	j.start()
	require.Eventually(t, waiting, 10*time.Second, 10*time.Millisecond)
	j.stop(promptly)
	require.Equal(t, []string{"outputs/a"}, j.objects())
}

// mounting runs the program with files of /etc replaced, in a mount namespace of its own.
func mounting(t *testing.T, j *job, files map[string]string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can replace a file of /etc for one process")
	}
	script := "set -e; mount --make-rprivate /;"
	for target, text := range files {
		source := filepath.Join(j.dir, filepath.Base(target))
		require.NoError(t, os.WriteFile(source, []byte(text), 0o644))
		script += fmt.Sprintf(" mount --bind '%s' '%s';", source, target)
	}
	j.wrap = []string{"unshare", "--mount", "sh", "-c", script + ` exec "$@"`, "sh"}
}

// silentResolver takes queries and answers none.
func silentResolver(t *testing.T, ip string) (asked chan struct{}) {
	t.Helper()
	c, err := net.ListenPacket("udp", ip+":53")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	asked = make(chan struct{}, 64)
	go func() {
		for {
			if _, _, err := c.ReadFrom(make([]byte, 2048)); err != nil {
				return
			}
			asked <- struct{}{}
		}
	}()
	return asked
}

func TestStopDuringANameLookup(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2", url: "http://nowhere.invalid/b?tok=signature-for-1"})
	mounting(t, j, map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.77\noptions timeout:10 attempts:2\n"})
	asked := silentResolver(t, "127.0.0.77")
	j.start()
	<-asked
	j.stop(promptly)
	require.Equal(t, []string{"outputs/a"}, j.objects())
}

func TestStopDuringTheReport(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.faults = []fault{named("result.json", never)}
	j.start().store.await("upload", 2)
	j.stop(promptly)
	require.Equal(t, []string{"outputs/a", "result.json"}, j.objects(), "begun before the stop")
}

func TestStopDuringTheReportOfAFailureLeavesTheFailure(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1", pin: doc{"sha256": strings.Repeat("0", 64)}})
	j.store.faults = []fault{named("result.json", never)}
	j.start().store.await("upload", 1)
	j.signal(syscall.SIGTERM)
	require.Equal(t, 10, j.wait(promptly), "status and code were decided")
	m := j.marker()
	require.Equal(t, "failed", m["status"])
	require.EqualValues(t, 10, m["exit_code"])
	require.Contains(t, m["error"], "hashes to")
	require.NotContains(t, j.output(), "could not write")
	require.Contains(t, j.output(), "no result.json for this run")
}

func TestStopDuringTheMarkerChangesNothing(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.faults = []fault{named(markerName, hold(3*time.Second))}
	j.start().store.await("upload", 3)
	j.signal(syscall.SIGTERM)
	require.Equal(t, 0, j.wait(10*time.Second))
	require.Equal(t, "succeeded", j.marker()["status"])
	require.Equal(t, 1, count(j.store.requests("upload"), markerName))
}

func TestSecondStopDuringTheReceiptDoesNotLoseIt(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"})
	j.store.faults = []fault{on("input", 2, never), named(markerName, hold(3*time.Second))}
	j.start().store.await("input", 2)
	j.signal(syscall.SIGTERM)
	j.store.await("upload", 2)
	for range 5 {
		j.signal(syscall.SIGTERM)
		j.signal(syscall.SIGINT)
	}
	require.Equal(t, 20, j.wait(10*time.Second))
	require.Equal(t, "cancelled", j.marker()["status"])
	require.Equal(t, []string{"outputs/a"}, j.objects())
	require.Equal(t, 1, strings.Count(j.stderr.String(), "stop requested"))
}

func TestStopWithAStoreThatIsGoneEndsWithinTheMarkersDeadline(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.faults = []fault{on("input", 1, never), on("upload", 0, never)}
	j.start().store.await("input", 1)
	began := time.Now()
	j.signal(syscall.SIGTERM)
	require.Equal(t, 20, j.wait(28*time.Second))
	require.Less(t, time.Since(began), 25*time.Second, "20 s for the marker")
	require.Contains(t, j.stderr.String(), "could not be confirmed")
}

func TestReaderOfTheOutputThatGoesAwayCostsNoMarker(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.faults = []fault{on("input", 1, hold(time.Second))}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	j.stdoutFile = w
	j.start()
	require.NoError(t, w.Close())
	require.NoError(t, r.Close())
	require.Equal(t, 0, j.wait(20*time.Second))
	require.Equal(t, "succeeded", j.marker()["status"])
}

func TestAsProcessOneOfItsNamespaceAStopIsHeard(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make a pid namespace")
	}
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"})
	// unshare waits and is told nothing: the signal goes to its child, process 1 inside.
	j.wrap = []string{"unshare", "--pid", "--fork", "--mount-proc"}
	j.store.faults = []fault{on("input", 2, never)}
	j.start().store.await("input", 2)
	pid := childOf(t, j.cmd.Process.Pid)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	require.Regexp(t, `NSpid:\s+\d+\s+1\n`, string(status))
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	require.Equal(t, 20, j.wait(promptly))
	require.Equal(t, "cancelled", j.marker()["status"])
}

func childOf(t *testing.T, pid int) (child int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	require.NoError(t, err)
	_, err = fmt.Sscan(string(text), &child)
	require.NoError(t, err)
	return child
}
