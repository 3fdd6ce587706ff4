// Package s3_test runs openai4s-agent step against a real S3 server, which checks signatures and POST policies.
package s3_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"
)

const (
	bucket = "runs"
	prefix = "staging/attempts/1/gen-1/"
	secret = "secret-of-the-server"
	marker = "__lspo_complete.json"

	invocation = `{"execution_id":7,"attempt":1,"generation":1,"params":{}}`
)

var (
	agent, server string // programs
	endpoint      string // host:port of the running server
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "s3-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agent, server = filepath.Join(dir, "openai4s-agent"), filepath.Join(dir, "server")
	for _, b := range []struct{ out, pkg, in string }{
		{agent, "./cmd/openai4s-agent", "../.."},
		{server, "./server", "."},
	} {
		build := exec.Command("go", "build", "-o", b.out, b.pkg)
		build.Dir = b.in
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n%s", b.pkg, err, out)
			return 1
		}
	}
	stop, err := startServer(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

// startServer runs the server over a folder until stop is called.
func startServer(dir string) (stop func(), err error) {
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	endpoint = l.Addr().String()
	_ = l.Close()
	log := &bytes.Buffer{}
	cmd := exec.Command(server, endpoint, data)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=tests", "ROOT_SECRET_KEY="+secret)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() { _ = cmd.Process.Kill(); <-ended }
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.DialTimeout("tcp", endpoint, time.Second)
		if err == nil {
			return stop, c.Close()
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the S3 server ended: %v\n%s", err, log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			stop()
			return nil, fmt.Errorf("the S3 server doesn't listen:\n%s", log)
		}
	}
}

var runs atomic.Int32

type object struct{ name, data, pin string }

// job is one run with a bucket of its own.
type job struct {
	t           *testing.T
	client      *minio.Client
	bucket      string
	expiry      time.Duration // of signatures
	upTo        int64         // bytes that the POST policy allows
	creds       string
	awaitExpiry bool // start the step only when its signatures are dead
	objects     []object
	dead        time.Time // when the last policy ends
	gate        string    // a server of the test's own
	atGate      []string  // objects that are read there
	secrets     []string
	stderr      bytes.Buffer
	stdout      bytes.Buffer
}

func newJob(t *testing.T) *job {
	client, err := minio.New(endpoint, &minio.Options{Creds: credentials.NewStaticV4("tests", secret, ""), Region: "us-east-1"})
	require.NoError(t, err)
	j := &job{t: t, client: client, bucket: fmt.Sprintf("%s-%d", bucket, runs.Add(1)), expiry: 15 * time.Minute, upTo: 1 << 30,
		creds: filepath.Join(t.TempDir(), "creds.json")}
	require.NoError(t, client.MakeBucket(t.Context(), j.bucket, minio.MakeBucketOptions{}))
	return j
}

func (j *job) put(name, data string) {
	_, err := j.client.PutObject(j.t.Context(), j.bucket, name, bytes.NewReader([]byte(data)), int64(len(data)), minio.PutObjectOptions{})
	require.NoError(j.t, err)
}

func (j *job) get(name string) []byte {
	o, err := j.client.GetObject(j.t.Context(), j.bucket, name, minio.GetObjectOptions{})
	require.NoError(j.t, err)
	data, err := io.ReadAll(o)
	require.NoError(j.t, err, name)
	return data
}

func (j *job) presign(name string) string {
	u, err := j.client.PresignedGetObject(j.t.Context(), j.bucket, name, j.expiry, url.Values{})
	require.NoError(j.t, err)
	return u.String()
}

// run puts the objects in place, signs everything with minio's own client and runs the step.
func (j *job) run(objects ...object) int {
	j.put("invocation.json", invocation)
	for i, o := range objects {
		j.put("in/"+o.name, o.data)
		if o.pin == "" {
			sum := sha256.Sum256([]byte(o.data))
			objects[i].pin = hex.EncodeToString(sum[:])
		}
	}
	j.objects = objects
	j.sign()
	if j.awaitExpiry {
		j.expired()
	}
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, agent, "step")
	cmd.Env = []string{"LSPO_CREDENTIALS_FILE=" + j.creds, "LSPO_EXECUTION_ID=7", "LSPO_ATTEMPT=1", "LSPO_GENERATION=1", "TMPDIR=" + j.t.TempDir()}
	cmd.Stdout, cmd.Stderr = &j.stdout, &j.stderr
	_ = cmd.Run() // the code is the caller's business
	texts := map[string]string{"stdout": j.stdout.String(), "stderr": j.stderr.String()}
	for o := range j.client.ListObjects(j.t.Context(), j.bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		require.NoError(j.t, o.Err)
		if name := strings.TrimPrefix(o.Key, prefix); name == marker || name == "result.json" {
			texts[name] = string(j.get(o.Key))
		}
	}
	require.Equal(j.t, !j.awaitExpiry, texts[marker] != "", "a marker is there to be searched, unless nothing could be written")
	for where, text := range texts {
		for _, s := range j.secrets {
			require.NotContains(j.t, text, s, where)
		}
	}
	return cmd.ProcessState.ExitCode()
}

// sign puts a fresh envelope in place by rename.
func (j *job) sign() {
	entries := []any{}
	for _, o := range j.objects {
		entries = append(entries, map[string]any{"port": "input", "relpath": o.name, "sha256": o.pin, "size": len(o.data), "get_url": j.read("in/" + o.name)})
	}
	policy := minio.NewPostPolicy()
	require.NoError(j.t, policy.SetBucket(j.bucket))
	require.NoError(j.t, policy.SetKeyStartsWith(prefix))
	j.dead = time.Now().UTC().Add(j.expiry)
	require.NoError(j.t, policy.SetExpires(j.dead))
	require.NoError(j.t, policy.SetContentLengthRange(0, j.upTo))
	to, fields, err := j.client.PresignedPostPolicy(j.t.Context(), policy)
	require.NoError(j.t, err)
	envelope, err := json.Marshal(map[string]any{"schema_version": 1, "scheme": "s3", "expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		"manifest_get": j.read("invocation.json"), "inputs": entries,
		"staging": map[string]any{"mode": "presigned_post", "post": map[string]any{"url": to.String(), "fields": fields, "key_prefix": prefix}}})
	require.NoError(j.t, err)
	for _, s := range []string{"X-Amz-Signature=", fields["x-amz-credential"], fields["policy"], fields["x-amz-signature"]} {
		require.Contains(j.t, string(envelope), s, "the search itself")
		j.secrets = append(j.secrets, s)
	}
	require.NoError(j.t, os.WriteFile(j.creds+".new", envelope, 0o600))
	require.NoError(j.t, os.Rename(j.creds+".new", j.creds))
}

// read is where an object is read: signed, or at the gate.
func (j *job) read(name string) string {
	if slices.Contains(j.atGate, name) {
		return j.gate + "/" + name + "?X-Amz-Signature=of-the-gate"
	}
	return j.presign(name)
}

// expired returns once the last policy and a signature made now are dead, and so all older ones. A policy's end has
// fractions of a second, a signature's has none.
func (j *job) expired() {
	dead := j.presign("invocation.json")
	require.Eventually(j.t, func() bool {
		resp, err := http.Get(dead)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusForbidden && time.Now().After(j.dead)
	}, 20*time.Second, 100*time.Millisecond)
}

type document struct {
	Status  string
	Error   *string
	Objects []struct {
		Relpath, SHA256 string
		Size            int64
	}
}

func (j *job) marker() (d document) {
	require.NoError(j.t, json.Unmarshal(j.get(prefix+marker), &d))
	return d
}

func TestSignedReadsAndPolicyWritesAgainstARealServer(t *testing.T) {
	j := newJob(t)
	big := string(bytes.Repeat([]byte("0123456789abcde\n"), 1<<20)) // 16 MiB
	names := []object{{name: "a.csv", data: "1\n2\n"}, {name: "empty", data: ""}, {name: "big.bin", data: big},
		{name: "with space & 100%+plus.csv", data: "s"}, {name: "ünïcode-日本.csv", data: "u"}, {name: "year=2026/rows.csv", data: "n"}}
	require.Equal(t, 0, j.run(names...), "stdout:\n%s\nstderr:\n%s", &j.stdout, &j.stderr)
	for _, o := range names {
		require.True(t, o.data == string(j.get(prefix+"outputs/"+o.name)), o.name)
	}
	m := j.marker()
	require.Equal(t, "succeeded", m.Status)
	require.Len(t, m.Objects, len(names)+1)
	for _, o := range m.Objects {
		sum := sha256.Sum256(j.get(prefix + o.Relpath))
		require.Equal(t, o.SHA256, hex.EncodeToString(sum[:]), o.Relpath)
	}
}

func TestRealServersRefusalOfALargerObjectThanThePolicyAllows(t *testing.T) {
	j := newJob(t)
	j.upTo = 2000
	require.Equal(t, 10, j.run(object{name: "large", data: string(make([]byte, 4000))}), "stderr:\n%s", &j.stderr)
	m := j.marker()
	require.Equal(t, "failed", m.Status)
	require.Contains(t, *m.Error, "large")
}

func TestRealServersExpiredSignatureIsTransient(t *testing.T) {
	j := newJob(t)
	j.expiry = time.Second
	j.awaitExpiry = true
	code := j.run(object{name: "a", data: "1"})
	require.Equal(t, 1, code, "stderr:\n%s", &j.stderr)
}

func TestRealServersExpiredSignatureIsRenewedByRotation(t *testing.T) {
	for name, atGate := range map[string][]string{"of a read": {"invocation.json"}, "of a write": {"invocation.json", "in/a"}} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			j.expiry, j.atGate = time.Second, atGate
			gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path := strings.TrimPrefix(r.URL.Path, "/")
				if path == atGate[len(atGate)-1] {
					j.expired() // what the step holds is worth nothing any more
					j.expiry = 15 * time.Minute
					j.sign()
				}
				_, _ = io.WriteString(w, map[string]string{"invocation.json": invocation, "in/a": "1"}[path])
			}))
			defer gate.Close()
			j.gate = gate.URL
			require.Equal(t, 0, j.run(object{name: "a", data: "1"}), "stderr:\n%s", &j.stderr)
			require.Equal(t, "succeeded", j.marker().Status)
			require.Equal(t, "1", string(j.get(prefix+"outputs/a")))
			require.Len(t, j.secrets, 8, "two envelopes")
		})
	}
}

func TestRealServersChangedInputIsRefused(t *testing.T) {
	j := newJob(t)
	sum := sha256.Sum256([]byte("other"))
	require.Equal(t, 10, j.run(object{name: "a", data: "bytes", pin: hex.EncodeToString(sum[:])}))
	require.Contains(t, *j.marker().Error, "hashes to")
}
