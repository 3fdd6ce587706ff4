package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/internal/munge"
	"github.com/openai4s/hpc/scheduler"
)

// script writes a program of the test's.
func script(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return path
}

// fakeMunge stands for munge where none is installed: its credential is the payload in base64.
func fakeMunge(t testing.TB) string {
	return script(t, `echo "MUNGE:$(base64 | tr -d '\n'):"`)
}

// fakeUnmunge says that a credential is a user's; ttl as the maker asked for it. The real one is in munge_live_test.go.
func fakeUnmunge(t testing.TB, uid, ttl int) string {
	return script(t, fmt.Sprintf(`payload=$(sed 's/^MUNGE://;s/:$//' | base64 --decode) || exit 14
printf 'STATUS:          0\nENCODE_HOST:     192.0.2.7\nTTL:             %d\nUID:             %d\nGID:             %d\nLENGTH:          %%d\n\n%%s' "${#payload}" "$payload"`, ttl, uid, uid))
}

// remote serves control over TCP with an unmunge of the test's and returns what reaches it.
func (r *rig) remote(unmunge string) api.Remote {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(r.t, err)
	callers := r.server.Remotes(ln, unmunge)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.server.ServeControl(ctx, callers); err != nil {
			r.t.Errorf("serving control over TCP: %v", err)
		}
	})
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	return api.Remote{Address: ln.Addr().String(), Pins: []string{r.id.Pin}, Munge: fakeMunge(r.t)}
}

// callers are the audit log's records of control connections so far.
func (r *rig) callers() []map[string]any { return r.records("control") }

// awaitCaller waits for the n-th record and returns its verdict and cause.
func (r *rig) awaitCaller(n int) (verdict, cause string) { return r.verdict("control", n) }

// rawRemote is a control connection of a peer that keeps to no rule.
func (r *rig) rawRemote(to api.Remote, protocols ...string) *tls.Conn {
	r.t.Helper()
	c, err := tls.Dial("tcp", to.Address, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	require.NoError(r.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

func TestControlOverTCP(t *testing.T) {
	r := newRig(t).serve()
	to := r.remote(fakeUnmunge(t, alice, 60))
	c, info, err := api.DialRemote(t.Context(), to)
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, os.Getpid(), info.PID)
	made, err := c.Create(t.Context(), request(2))
	require.NoError(t, err)
	assert.Equal(t, alice, made.Workload.UID, "the credential says who it is")
	verdict, _ := r.awaitCaller(1)
	assert.Equal(t, "accepted", verdict)
	assert.EqualValues(t, alice, r.callers()[0]["uid"])
	assert.Equal(t, "192.0.2.7", r.callers()[0]["host"])
	assert.Len(t, r.callers(), 1, "one credential for all requests of a connection")

	// The same rules as on the socket.
	b, _, err := api.DialRemote(t.Context(), r.remote(fakeUnmunge(t, bob, 60)))
	require.NoError(t, err)
	defer b.Close()
	_, err = b.Get(t.Context(), string(made.Workload.ID))
	var e *api.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 404, e.Status)
	_, err = b.List(t.Context(), api.Which{All: true})
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 403, e.Status)
	root, _, err := api.DialRemote(t.Context(), r.remote(fakeUnmunge(t, 0, 60)))
	require.NoError(t, err)
	defer root.Close()
	list, err := root.List(t.Context(), api.Which{All: true})
	require.NoError(t, err)
	assert.Len(t, list.Workloads, 1)
}

// A member of an admin group is one over TCP too, where nobody tells the process's groups.
func TestGroupsOfAUser(t *testing.T) {
	me := os.Getuid()
	line, ok := getent("initgroups", userName(me))
	require.True(t, ok)
	assert.Len(t, groupsOf(me), len(strings.Fields(line))-1)
	assert.Empty(t, groupsOf(1<<30))
}

// What unmunge says decides, and without its word nobody is let in.
func TestCallersOverTCPThatAreRefused(t *testing.T) {
	good := `payload=$(sed 's/^MUNGE://;s/:$//' | base64 --decode)
printf 'STATUS:          %s\nENCODE_HOST:     192.0.2.7\nTTL:             60\nUID:             %s\nGID:             7\nLENGTH:          %d\n\n%s' `
	for name, tt := range map[string]struct {
		unmunge string
		verdict string
		cause   string
		says    string
	}{
		"replayed":               {"exit 17", "refused", "replayed", "replayed"},
		"expired":                {"exit 15", "refused", "expired", "expired"},
		"made in the future":     {"exit 16", "refused", "expired", "expired"},
		"another key":            {"exit 14", "refused", "invalid", "invalid"},
		"for another uid":        {"exit 18", "refused", "invalid", "invalid"},
		"munged is down":         {"echo no socket >&2; exit 6", "unavailable", "no socket", "gives no answer"},
		"not installed":          {"", "unavailable", "no such file", "gives no answer"},
		"an unknown code":        {"exit 77", "unavailable", "77", "gives no answer"},
		"killed":                 {"kill -9 $$", "unavailable", "killed", "gives no answer"},
		"no output":              {"true", "unavailable", "can't be read", "gives no answer"},
		"a banner":               {"echo Welcome to the cluster; " + good + `0 7 "${#payload}" "$payload"`, "unavailable", "can't be read", "gives no answer"},
		"a status beside code 0": {good + `17 7 "${#payload}" "$payload"`, "refused", "replayed", "replayed"},
		"uid that is no number":  {good + `0 root "${#payload}" "$payload"`, "unavailable", "can't be read", "gives no answer"},
		"uid that doesn't fit":   {good + `0 4294967296 "${#payload}" "$payload"`, "unavailable", "can't be read", "gives no answer"},
		"another length":         {good + `0 7 3 "$payload"`, "unavailable", "can't be read", "gives no answer"},
		"another payload":        {good + `0 7 "${#payload}" "$(echo "$payload" | tr 0123456789abcdef 123456789abcdef0)"`, "refused", "made for another connection", "another connection"},
		"no payload":             {good + `0 7 0 ""`, "refused", "made for another connection", "another connection"},
		"uid in the payload as well": {good + `0 7 "$((${#payload}+8))" "UID: 0

$payload"`, "refused", "made for another connection", "another connection"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).serve() // one after the other: a program that is being written can't be run by a fork meanwhile
			program := "/no/such/unmunge"
			if tt.unmunge != "" {
				program = script(t, tt.unmunge)
			}
			_, _, err := api.DialRemote(t.Context(), r.remote(program))
			require.Error(t, err)
			assert.Contains(t, err.Error(), tt.says)
			var e *api.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tt.verdict == "unavailable", e.Code == "unavailable")
			verdict, cause := r.awaitCaller(1)
			assert.Equal(t, tt.verdict, verdict)
			assert.Contains(t, cause, tt.cause)
			assert.NotContains(t, r.auditText(), "MUNGE:", "no credential is kept")
			assert.Zero(t, r.server.LiveCount())
		})
	}
	t.Run("a credential that lives long", func(t *testing.T) {
		r := newRig(t).serve()
		_, _, err := api.DialRemote(t.Context(), r.remote(fakeUnmunge(t, alice, 61)))
		assert.ErrorContains(t, err, "lives too long")
	})
}

// A captured credential is worth nothing on another connection, also where MUNGE has never seen it.
func TestCredentialOfAnotherConnection(t *testing.T) {
	r := newRig(t).serve()
	to := r.remote(fakeUnmunge(t, alice, 60))
	captured := filepath.Join(t.TempDir(), "credential")
	// Its maker's connection ends before the credential is sent.
	thief := to
	thief.Munge = script(t, `echo "MUNGE:$(base64 | tr -d '\n'):" >`+captured+`; exit 1`)
	_, _, err := api.DialRemote(t.Context(), thief)
	require.ErrorIs(t, err, api.ErrMunge)
	thief.Munge = script(t, "cat >/dev/null; cat "+captured)
	_, _, err = api.DialRemote(t.Context(), thief)
	require.ErrorContains(t, err, "made for another connection")
	verdict, cause := r.awaitCaller(2)
	assert.Equal(t, []string{"refused", "made for another connection"}, []string{verdict, cause})
}

func TestWrongKeyIsToldNothing(t *testing.T) {
	r := newRig(t).serve()
	to := r.remote(fakeUnmunge(t, alice, 60))
	asked := filepath.Join(t.TempDir(), "asked")
	to.Munge = script(t, "touch "+asked)
	to.Pins = []string{"sha256:" + strings.Repeat("0", 64)}
	_, _, err := api.DialRemote(t.Context(), to)
	require.ErrorIs(t, err, api.ErrWrongKey)
	assert.NoFileExists(t, asked, "no credential is made for it")
	to.Pins = append(to.Pins, r.id.Pin)
	to.Munge = fakeMunge(t)
	c, _, err := api.DialRemote(t.Context(), to)
	require.NoError(t, err, "one of several pins")
	c.Close()
	// The agents' listener has the right key and is still not the control API.
	to.Address, to.Munge = r.addr, script(t, "touch "+asked)
	_, _, err = api.DialRemote(t.Context(), to)
	require.ErrorContains(t, err, api.RemoteProtocol)
	assert.NoFileExists(t, asked)
}

func TestMungeOfTheCallersHost(t *testing.T) {
	r := newRig(t).serve()
	to := r.remote(fakeUnmunge(t, alice, 60))
	for name, tt := range map[string]struct{ munge, says string }{
		"down":          {"echo 'Failed to access \"/run/munge\" (Did you start munged?)' >&2; exit 6", "Did you start munged?"},
		"silent":        {"true", "something else"},
		"garbage":       {"echo hello", "something else"},
		"two lines":     {"echo MUNGE:YQ==:; echo MUNGE:YQ==:", "something else"},
		"without end":   {"yes MUNGE:YQ==: | head -c 100000", "something else"},
		"escape codes":  {`printf 'MUNGE:\033[31m:'`, "something else"},
		"not installed": {"", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			to := to
			to.Munge = "/no/such/munge"
			if tt.munge != "" {
				to.Munge = script(t, tt.munge)
			}
			_, _, err := api.DialRemote(t.Context(), to)
			require.ErrorIs(t, err, api.ErrMunge)
			require.ErrorIs(t, err, api.ErrNobody)
			assert.Contains(t, err.Error(), tt.says)
		})
	}
}

// Whatever a stranger sends gets no further than the credential.
func TestStrangersOverTCP(t *testing.T) {
	r := newRig(t).serve()
	ran := filepath.Join(t.TempDir(), "ran")
	to := r.remote(script(t, "touch "+ran+"; exit 14"))
	n := 0
	for _, tt := range []struct{ name, says, want string }{
		{"a request", "GET /v1/info HTTP/1.1\r\nHost: x\r\n\r\n", "malformed"},
		{"an empty line", "\n", "malformed"},
		{"no base64", "MUNGE:$(id):\n", "malformed"},
		{"a line without end", "MUNGE:" + strings.Repeat("A", munge.Max), "malformed"},
		{"a request behind the credential", "MUNGE:YQ==:\nGET /v1/info HTTP/1.1\r\n\r\n", "malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := r.rawRemote(to, api.RemoteProtocol)
			_, err := c.Write([]byte(tt.says))
			require.NoError(t, err)
			text, _ := io.ReadAll(c) // it may be reset after the answer
			assert.Contains(t, string(text), tt.want)
			assert.NotContains(t, string(text), "version")
			n++
			verdict, cause := r.awaitCaller(n)
			assert.Equal(t, "refused", verdict)
			assert.Equal(t, tt.want, cause)
			assert.NoFileExists(t, ran, "unmunge isn't troubled with it")
		})
	}
	t.Run("another protocol", func(t *testing.T) {
		c := r.rawRemote(to)
		text, _ := io.ReadAll(c)
		assert.Empty(t, text)
		_, cause := r.awaitCaller(n + 1)
		assert.Equal(t, "another protocol", cause)
	})
	t.Run("no TLS", func(t *testing.T) {
		c, err := net.Dial("tcp", to.Address)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		require.NoError(t, err)
		text, _ := io.ReadAll(c)
		assert.NotContains(t, string(text), "openai4s")
		r.awaitCaller(n + 2)
	})
}

// A silent caller has its slot for the deadline at most, and others aren't kept from theirs.
func TestSilentCallers(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Handshake = 500 * time.Millisecond }).serve()
	to := r.remote(fakeUnmunge(t, alice, 60))
	silent := r.rawRemote(to, api.RemoteProtocol)
	mute, err := net.Dial("tcp", to.Address) // not even TLS
	require.NoError(t, err)
	defer mute.Close()
	for _, c := range []net.Conn{silent, mute} {
		_, err := bufio.NewReader(c).ReadByte()
		require.Error(t, err)
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the gateway ended it")
	}
	verdict, _ := r.awaitCaller(2)
	assert.Equal(t, "timeout", verdict)
}

func TestManySilentCallers(t *testing.T) {
	r := newRig(t).serve()
	to := r.remote(fakeUnmunge(t, alice, 60))
	var all []net.Conn
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	dial := func() net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}} // 127.0.0.1 has no bound of its own
		c, err := d.DialContext(t.Context(), "tcp", to.Address)
		require.NoError(t, err)
		all = append(all, c)
		return c
	}
	for range remotePending {
		dial()
	}
	verdict, _ := r.awaitCaller(1)
	assert.Equal(t, "source", verdict, "one address can't take all places")
	c, _, err := api.DialRemote(t.Context(), to)
	require.NoError(t, err)
	c.Close()
}

// A daemon that stops leaves no caller waiting.
func TestStopWhileCallersShakeHands(t *testing.T) {
	r := newRig(t).serve()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := filepath.Join(t.TempDir(), "asked")
	callers := r.server.Remotes(ln, script(t, "touch "+asked+"; exec sleep 600"))
	to := api.Remote{Address: ln.Addr().String()}
	silent := r.rawRemote(to, api.RemoteProtocol)
	waits := r.rawRemote(to, api.RemoteProtocol)
	_, err = waits.Write([]byte("MUNGE:YQ==:\n"))
	require.NoError(t, err)
	r.eventually("MUNGE to be asked", func() bool { _, err := os.Stat(asked); return err == nil })
	began := time.Now()
	require.NoError(t, callers.Close())
	assert.Less(t, time.Since(began), 4*time.Second)
	for _, c := range []net.Conn{waits, silent} {
		_, err := io.ReadAll(c)
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	_, err = callers.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}

func TestMungeDownIsLogged(t *testing.T) {
	r := newRig(t)
	var log bytes.Buffer
	r.server.log = zerolog.New(zerolog.SyncWriter(&log))
	r.serve()
	to := r.remote(script(t, "echo Did you start munged? >&2; exit 6"))
	for range 3 {
		_, _, err := api.DialRemote(t.Context(), to)
		require.ErrorContains(t, err, "MUNGE on the gateway's host gives no answer")
	}
	r.awaitCaller(3)
	r.halt()
	assert.Equal(t, 1, strings.Count(log.String(), "Did you start munged?"), "once a minute: %s", log.String())
	assert.Contains(t, log.String(), "look at munged on this host")
}

// Every answer that denies something is in the audit log, and so is what an administrator was shown.
func TestDecisionsAreRecorded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxLive = 1 }).serve()
	id := string(r.made(alice, func(c *api.Create) { c.IdempotencyKey = "k" }).Workload.ID)
	record := func(words ...string) {
		t.Helper()
		for line := range strings.Lines(r.auditText()) {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return
			}
		}
		t.Errorf("no record has all of %q:\n%s", words, r.auditText())
	}
	record(`"created"`, id, `"uid":54321`)
	r.made(alice, func(c *api.Create) { c.IdempotencyKey = "k" })
	record(`"existing"`, id, `"uid":54321`)
	r.as(alice, "POST", "/v1/workloads", request(2))
	record(`"refused"`, `"uid":54321`, `"limit"`, "max_live")
	r.as(bob, "POST", "/v1/workloads/"+id+"/cancel", nil)
	record(`"refused"`, `"uid":54322`, `"not_found"`, id, "cancel")
	r.as(bob, "GET", "/v1/workloads?all=1", nil)
	record(`"refused"`, `"uid":54322`, `"not_allowed"`)
	r.as(-1, "GET", "/v1/info", nil)
	record(`"refused"`, `"uid":-1`, `"not_allowed"`)
	r.as(0, "GET", "/v1/workloads?all=1", nil)
	record(`"admin"`, `"uid":0`, "everybody")
	r.as(0, "GET", "/v1/workloads/"+id, nil)
	record(`"admin"`, `"uid":0`, id, `"owner":54321`)
	r.as(alice, "POST", "/v1/workloads/"+id+"/allocations", nil)
	record(`"credentials"`, `"uid":54321`, id)
	r.as(alice, "PUT", "/v1/workloads/"+id+"/submission", api.Submission{Outcome: scheduler.Created, Job: scheduler.JobID{ID: "7"}})
	record(`"submission"`, `"uid":54321`, id)
	r.as(alice, "PUT", "/v1/workloads/"+id+"/observation", api.ObservationReport{Observation: &scheduler.Observation{Phase: scheduler.Granted}})
	record(`"observation"`, `"uid":54321`, id, "GRANTED")
	r.as(alice, "GET", "/v1/workloads/"+id, nil)
	assert.NotContains(t, r.auditText(), `"owner":54321,"uid":54321`)
	r.as(alice, "POST", "/v1/workloads/"+id+"/cancel", nil)
	record(`"cancel"`, `"uid":54321`, id)

	before := strings.Count(r.auditText(), `"refused"`)
	for range 100 {
		r.as(bob, "GET", "/v1/workloads/"+id, nil)
	}
	assert.Less(t, strings.Count(r.auditText(), `"refused"`)-before, 40, "a flood is summed up")
	r.clock.advance(2 * time.Second)
	r.eventually("the sum", func() bool { return strings.Contains(r.auditText(), `"summed up"`) })
}

func TestLimitsOfAUser(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxLive, c.MaxCredentials = 5, 10 }).serve()
	restarts := func(n int) func(*api.Create) { return func(c *api.Create) { c.Request.Restarts = n } }
	refused := func(says string, edit func(*api.Create)) {
		t.Helper()
		c := request(2)
		edit(&c)
		status, body := r.as(alice, "POST", "/v1/workloads", c)
		assert.Equal(t, 429, status)
		assert.Contains(t, body, says)
	}
	refused("takes 12 credentials, one a rank and start, and the site allows 10 (max_credentials)", restarts(5))
	first := r.made(alice, restarts(2)) // 2 ranks, 3 starts
	refused("have 6 credentials, this one takes 6 more, and the site allows 10 (max_credentials)", restarts(2))
	r.made(alice, restarts(1), func(c *api.Create) { c.IdempotencyKey = "k" })
	refused("max_credentials", restarts(0))
	again := r.made(alice, restarts(1), func(c *api.Create) { c.IdempotencyKey = "k" })
	assert.True(t, again.Existing, "what was made already is no more")
	r.made(bob, restarts(2))
	r.as(alice, "PUT", "/v1/workloads/"+string(first.Workload.ID)+"/submission", api.Submission{Outcome: scheduler.Rejected})
	r.made(alice, restarts(2)) // what is over doesn't count
	assert.Empty(t, r.server.reserved)
	r.restart(func(c *Config) { c.MaxCredentials = 10 })
	refused("max_credentials", restarts(0)) // also after a restart
}

// Requests at the same time don't pass a limit together.
func TestLimitHoldsAtTheSameTime(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxLive = 3 }).serve()
	var wg sync.WaitGroup
	codes := make(chan int, 24)
	for range cap(codes) {
		wg.Go(func() {
			status, _ := r.as(alice, "POST", "/v1/workloads", request(2))
			codes <- status
		})
	}
	wg.Wait()
	close(codes)
	made := 0
	for code := range codes {
		if code == 201 {
			made++
		}
	}
	assert.Equal(t, 3, made)
	assert.Equal(t, 3, r.server.LiveCount())
}
