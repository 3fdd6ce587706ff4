package step_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEstablishingAConnectionHasOneDeadline(t *testing.T) {
	t.Parallel()
	one, _ := deaf(t, [4]byte{127, 0, 0, 1}, 0)
	slowProxy := newStall(t, 7*time.Second, "HTTP/1.1 200 Connection established\r\n\r\n")
	silentProxy := newStall(t, 0, "")
	mute := newStall(t, 0, "")
	for name, c := range map[string]struct {
		url string
		env string
	}{
		"an address that drops packets":             {"http://" + one + "/a", ""},
		"a handshake that never comes":              {"https://" + mute.addr() + "/a", ""},
		"a proxy that never answers":                {"https://unreachable.example/a", "HTTPS_PROXY=http://" + silentProxy.addr()},
		"a proxy that spends most of it, then none": {"https://unreachable.example/a", "HTTPS_PROXY=http://" + slowProxy.addr()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a", data: "1", url: c.url + "?tok=signature-for-1"})
			j.env = []string{c.env}
			require.Contains(t, j.failed(1), "no connection to")
			require.Less(t, j.elapsed, 14*time.Second)
			require.Greater(t, j.elapsed, 9*time.Second)
		})
	}
}

func TestOneDeadlineCoversEveryAddressOfAName(t *testing.T) {
	t.Parallel()
	first, _ := deaf(t, [4]byte{127, 0, 0, 81}, 0)
	_, port, err := net.SplitHostPort(first)
	require.NoError(t, err)
	var n int
	_, _ = fmt.Sscan(port, &n)
	deaf(t, [4]byte{127, 0, 0, 82}, n)
	deaf(t, [4]byte{127, 0, 0, 83}, n)
	j := newJob(t, in{name: "a", data: "1", url: "http://unanswered.invalid:" + port + "/a?tok=signature-for-1"})
	mounting(t, j, map[string]string{"/etc/hosts": "127.0.0.81 unanswered.invalid\n127.0.0.82 unanswered.invalid\n127.0.0.83 unanswered.invalid\n127.0.0.1 localhost\n"})
	j.failed(1)
	require.Less(t, j.elapsed, 20*time.Second)
}

func TestNameLookupThatHangsIsBounded(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1", url: "http://nowhere.invalid/a?tok=signature-for-1"})
	mounting(t, j, map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.78\noptions timeout:10 attempts:2\n"})
	silentResolver(t, "127.0.0.78")
	j.failed(1)
	require.Less(t, j.elapsed, 20*time.Second)
}

func TestDeadAddressBesideALiveOneIsPassedOver(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	_, port, err := net.SplitHostPort(j.store.server.Listener.Addr().String())
	require.NoError(t, err)
	j.inputs[0].url = strings.Replace(j.store.getURL(1, "a"), "127.0.0.1:", "twofold.invalid:", 1)
	var n int
	_, _ = fmt.Sscan(port, &n)
	deaf(t, [4]byte{127, 0, 0, 84}, n)
	mounting(t, j, map[string]string{"/etc/hosts": "127.0.0.84 twofold.invalid\n127.0.0.1 twofold.invalid\n"})
	j.succeeded()
}

func TestReadMayBeSilentForTwelveSecondsButNotForTwentyFive(t *testing.T) {
	t.Parallel()
	t.Run("held for 12 s", func(t *testing.T) {
		t.Parallel()
		j := newJob(t, in{name: "a", data: "1"})
		j.store.faults = []fault{on("input", 1, hold(12*time.Second))}
		j.succeeded()
	})
	t.Run("never answered", func(t *testing.T) {
		t.Parallel()
		j := newJob(t, in{name: "a", data: "1"})
		j.store.faults = []fault{on("input", 1, never)}
		require.Contains(t, j.failed(1), "silent for 25s")
		require.InDelta(t, 25, j.elapsed.Seconds(), 4)
	})
}

func TestUploadMayBeSilentForTenSeconds(t *testing.T) {
	t.Parallel()
	t.Run("the answer comes after 8 s", func(t *testing.T) {
		t.Parallel()
		j := newJob(t, in{name: "a", data: "1"})
		j.store.faults = []fault{on("upload", 1, hold(8*time.Second))}
		j.succeeded()
	})
	t.Run("the answer never comes", func(t *testing.T) {
		t.Parallel()
		j := newJob(t, in{name: "a", data: "1"})
		j.store.faults = []fault{on("upload", 1, never)}
		require.Contains(t, j.failed(1), "silent for 10s")
		require.InDelta(t, 10, j.elapsed.Seconds(), 4)
		require.Equal(t, []string{"outputs/a", "result.json"}, j.objects(), "it may have landed")
		require.Equal(t, 1, count(j.store.requests("upload"), "outputs/a"), "an ambiguous upload is never repeated")
	})
	t.Run("the body is never taken", func(t *testing.T) {
		t.Parallel()
		deafStore := newStall(t, 0, "")
		j := newJob(t, in{name: "a", data: strings.Repeat("x", 32<<20)})
		j.envelope = doc{"staging": doc{"mode": "presigned_post", "post": doc{"url": "http://" + deafStore.addr() + "/post",
			"key_prefix": prefix, "fields": orderedFields(j.store.formFields(1))}}}
		j.start()
		deafStore.await(t)
		j.envelope = nil
		j.rotate(time.Hour)
		require.Equal(t, 1, j.wait(60*time.Second))
		m := j.marker()
		require.Equal(t, "failed", m["status"])
		require.Contains(t, m["error"], "silent")
	})
}

func TestSlowUploadIsNoSilentOne(t *testing.T) {
	t.Parallel()
	// A store that takes 128 KiB a second for 13 s: that is slow, and no silence.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	taken, answer := make(chan struct{}), make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for range 26 {
			<-tick.C
			if _, err := io.CopyN(io.Discard, r.Body, 64<<10); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, r.Body)
		close(taken)
		<-answer
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	}()
	j := newJob(t, in{name: "a", data: strings.Repeat("x", 8<<20)})
	j.envelope = doc{"staging": doc{"mode": "presigned_post", "post": doc{"url": "http://" + l.Addr().String() + "/post",
		"key_prefix": prefix, "fields": orderedFields(j.store.formFields(1))}}}
	j.start()
	// Once it was taken, the run goes on with the test's own store.
	select {
	case <-taken:
	case <-time.After(60 * time.Second):
		t.Fatalf("the upload never ended; stderr:\n%s", j.stderr.String())
	}
	j.envelope = nil
	j.rotate(time.Hour)
	close(answer)
	j.wait(60 * time.Second)
	require.NotContains(t, j.stderr.String(), "writing outputs/a")
	require.Greater(t, j.elapsed, 12*time.Second)
}

func TestProxyForHTTP(t *testing.T) {
	t.Parallel()
	var through, authorised atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		through.Add(1)
		if user, password, ok := parseBasic(r.Header.Get("Proxy-Authorization")); ok && user == "me" && password == "passw0rdofproxy" {
			authorised.Add(1)
		}
		r.RequestURI = ""
		r.Header.Del("Proxy-Authorization")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(proxy.Close)
	at := strings.Replace(proxy.URL, "://", "://me:passw0rdofproxy@", 1)
	for name, c := range map[string]struct {
		env  []string
		used bool
	}{
		"http_proxy":                   {[]string{"http_proxy=" + at}, true},
		"HTTP_PROXY":                   {[]string{"HTTP_PROXY=" + at}, true},
		"all_proxy":                    {[]string{"ALL_PROXY=" + at}, true},
		"the lower-case name wins":     {[]string{"http_proxy=" + at, "HTTP_PROXY=http://127.0.0.1:1"}, true},
		"only https has one":           {[]string{"https_proxy=http://127.0.0.1:1"}, false},
		"no_proxy names the address":   {[]string{"http_proxy=" + at, "no_proxy=example.org, 127.0.0.1"}, false},
		"no_proxy names the network":   {[]string{"http_proxy=" + at, "NO_PROXY=127.0.0.0/8"}, false},
		"no_proxy names everything":    {[]string{"http_proxy=" + at, "no_proxy=*"}, false},
		"no_proxy names somebody else": {[]string{"http_proxy=" + at, "no_proxy=27.0.0.1,.0.1:1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, in{name: "a", data: "1"})
			j.env, j.secrets = c.env, []string{"passw0rdofproxy"}
			before := through.Load()
			j.succeeded()
			require.Equal(t, c.used, through.Load()-before == 5, "%d requests went through", through.Load()-before)
			require.Equal(t, through.Load(), authorised.Load())
		})
	}
}

func parseBasic(header string) (user, password string, ok bool) {
	r := http.Request{Header: http.Header{"Authorization": {header}}}
	return r.BasicAuth()
}

func TestProxyVariableThatIsNoURLIsToldWithoutItsValue(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.env, j.secrets = []string{"http_proxy=socks5://me:passw0rdofproxy@127.0.0.1:1"}, []string{"passw0rdofproxy"}
	require.Equal(t, 1, j.run())
	require.Contains(t, j.stderr.String(), "proxy variable")
}

// tlsFront puts a TLS server before the store and gives the file of its certificate.
func tlsFront(t *testing.T, s *store) (front *httptest.Server, ca string) {
	front = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"store.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	front.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	front.StartTLS()
	t.Cleanup(front.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return front, ca
}

func TestEverythingOverTLS(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: strings.Repeat("x\n", 3<<20)})
	front, ca := tlsFront(t, j.store)
	j.store.server.URL = front.URL
	j.env = []string{"SSL_CERT_FILE=" + ca}
	j.succeeded()
}

func TestCertificateNobodyVouchesForIsTransient(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	front, _ := tlsFront(t, j.store)
	j.inputs[0].url = front.URL + "/in/a?tok=" + signature(1, "a")
	require.Contains(t, j.failed(1), "certificate")
}

func TestTLSThroughAProxysTunnel(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	front, ca := tlsFront(t, j.store)
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Host)
		up, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			return
		}
		defer up.Close()
		down, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer down.Close()
		_, _ = io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(up, down) }()
		_, _ = io.Copy(down, up)
	}))
	t.Cleanup(proxy.Close)
	j.inputs[0].url = "https://store.example/in/a?tok=" + signature(1, "a")
	j.env = []string{"SSL_CERT_FILE=" + ca, "https_proxy=" + proxy.URL}
	j.succeeded()
	require.Equal(t, "CONNECT store.example:443", asked.Load())
}

func TestOneRequestAConnection(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"})
	var conns atomic.Int32
	j.store.faults = []fault{func(_ *store, _, _ string, _ int, _ http.ResponseWriter, r *http.Request) bool {
		if r.Close {
			conns.Add(1)
		}
		return false
	}}
	j.succeeded()
	require.EqualValues(t, 7, conns.Load())
}
