package step_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// doc is a JSON object of the contract.
type doc = map[string]any

// in is one input of a job.
type in struct {
	name string
	port string // "": input
	data string
	pin  doc    // replaces members of the envelope's entry; nil values delete them
	url  string // "": of the store
}

// job is one attempt: a store, the documents of a launch, and the process.
type job struct {
	t          *testing.T
	store      *store
	dir        string
	creds      string
	generation int
	life       time.Duration
	inputs     []in
	manifest   doc
	envelope   doc    // members that replace those of a written envelope; nil values delete them
	raw        string // the credentials file itself, instead of an envelope
	env        []string
	args       []string
	secrets    []string            // that must not be seen anywhere
	agent      string              // another copy of the program
	asUser     *syscall.Credential // nil: the test's own
	wrap       []string            // a command that runs the program

	stdoutFile     *os.File // instead of stdout
	cmd            *exec.Cmd
	stdout, stderr lockedBuffer
	started        time.Time
	ended          chan error
	elapsed        time.Duration
}

func newJob(t *testing.T, inputs ...in) *job {
	t.Helper()
	j := &job{t: t, store: newStore(t), dir: t.TempDir(), generation: 1, life: time.Hour, inputs: inputs}
	// TempDir of root is 0755 below a 0700: the agent finds its file by path alone.
	j.creds = filepath.Join(j.dir, "creds", "creds.json")
	require.NoError(t, os.Mkdir(filepath.Dir(j.creds), 0o711))
	j.manifest = doc{
		"schema_version": 1, "execution_id": 7, "pipeline_id": 2, "deployment_id": 3, "revision_id": 4,
		"organization_id": nil, "timeout_seconds": 600, "attempt": 1, "generation": 1,
		"image_digest": "sha256:" + strings.Repeat("a", 64), "params": doc{}, "env_names": []string{},
		"staging_prefix": "s3://bucket/" + strings.TrimSuffix(prefix, "/"), "credentials_file": j.creds,
		"idempotency_key": "key-7-1", "inputs": []any{},
	}
	for _, i := range inputs {
		j.store.objects[i.name] = content{data: []byte(i.data)}
	}
	j.store.allow(1, time.Hour)
	t.Cleanup(func() {
		if j.cmd != nil && j.cmd.ProcessState == nil {
			_ = j.cmd.Process.Kill()
			<-j.ended
		}
	})
	return j
}

// writeEnvelope puts a new envelope in place by rename, as the platform does while a step runs.
func (j *job) writeEnvelope() {
	text := j.raw
	if text == "" {
		text = j.composeEnvelope()
	}
	require.NoError(j.t, os.WriteFile(j.creds+".new", []byte(text), 0o444))
	require.NoError(j.t, os.Rename(j.creds+".new", j.creds))
}

func (j *job) composeEnvelope() string {
	entries := []any{}
	for _, i := range j.inputs {
		sum := sha256.Sum256([]byte(i.data))
		entry := doc{"port": i.port, "relpath": i.name, "name": i.name, "sha256": hex.EncodeToString(sum[:]),
			"size": len(i.data), "get_url": j.store.getURL(j.generation, i.name), "etag": "unknown"}
		if i.port == "" {
			entry["port"] = "input"
		}
		if i.url != "" {
			entry["get_url"] = i.url
		}
		override(entry, i.pin)
		entries = append(entries, entry)
	}
	e := doc{"schema_version": 1, "scheme": "s3", "credentials_file": j.creds,
		"expires_at":   time.Now().Add(j.life).UTC().Format("2006-01-02T15:04:05.999999+00:00"),
		"manifest_get": j.store.getURL(j.generation, "invocation.json"), "inputs": entries,
		"staging": doc{"mode": "presigned_post", "post": doc{"url": j.store.server.URL + "/post",
			"key_prefix": prefix, "fields": orderedFields(j.store.formFields(j.generation))}},
		"refresh_hint_s": 300,
	}
	override(e, j.envelope)
	text, err := json.Marshal(e)
	require.NoError(j.t, err)
	return string(text)
}

func override(d, with doc) {
	for k, v := range with {
		if v == nil {
			delete(d, k)
		} else {
			d[k] = v
		}
	}
}

// orderedFields is an object in the order given.
type orderedFields [][2]string

func (o orderedFields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, f := range o {
		name, _ := json.Marshal(f[0])
		value, _ := json.Marshal(f[1])
		fmt.Fprintf(&b, "%s%s:%s", map[bool]string{true: "{", false: ","}[i == 0], name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// rotate makes the next generation's envelope.
func (j *job) rotate(life time.Duration) {
	j.generation++
	j.life = life
	j.store.allow(j.generation, time.Hour)
	j.writeEnvelope()
}

func (j *job) start() *job {
	j.t.Helper()
	manifest, err := json.Marshal(j.manifest)
	require.NoError(j.t, err)
	if _, there := j.store.objects["invocation.json"]; !there {
		j.store.objects["invocation.json"] = content{data: manifest}
	}
	if j.raw != "-" { // "-": no file
		j.writeEnvelope()
	}
	if j.agent == "" {
		j.agent = agent
	}
	argv := append(append(slices.Clone(j.wrap), j.agent, "step"), j.args...)
	j.cmd = exec.Command(argv[0], argv[1:]...)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: j.asUser}
	j.cmd.Dir = j.dir
	j.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + j.dir, "HOME=" + j.dir,
		"LSPO_CREDENTIALS_FILE=" + j.creds, "LSPO_JOB_ID=job-1", "LSPO_EXECUTION_ID=7", "LSPO_ATTEMPT=1",
		"LSPO_GENERATION=1", "LSPO_INVOCATION_URI=s3://bucket/invocation.json", "LSPO_STAGING_PREFIX=s3://bucket/" + prefix,
		"LSPO_IDEMPOTENCY_KEY=key-of-env", "LSPO_CONTRACT_VERSION=1",
	}, j.env...)
	j.cmd.Stdout, j.cmd.Stderr = &j.stdout, &j.stderr
	if j.stdoutFile != nil {
		j.cmd.Stdout = j.stdoutFile
	}
	j.ended = make(chan error, 1)
	j.started = time.Now()
	require.NoError(j.t, j.cmd.Start())
	go func() { j.ended <- j.cmd.Wait() }()
	return j
}

// wait gives the exit code. It fails the test when the process lasts longer than within, and looks at everything
// that came out of it for what must never come out.
func (j *job) wait(within time.Duration) int {
	j.t.Helper()
	select {
	case <-j.ended:
		close(j.ended)
	case <-time.After(within):
		j.t.Fatalf("still running after %s; stdout:\n%s\nstderr:\n%s", within, j.stdout.String(), j.stderr.String())
	}
	j.elapsed = time.Since(j.started)
	j.searchForSecrets()
	return j.cmd.ProcessState.ExitCode()
}

func (j *job) run() int { j.t.Helper(); return j.start().wait(60 * time.Second) }

func (j *job) signal(s syscall.Signal) { require.NoError(j.t, j.cmd.Process.Signal(s)) }

// stop sends TERM and requires the end, with cancelled's code, within the bound.
func (j *job) stop(within time.Duration) {
	j.t.Helper()
	began := time.Now()
	j.signal(syscall.SIGTERM)
	code := j.wait(within)
	require.Equal(j.t, 20, code, "stderr:\n%s", j.stderr.String())
	require.Less(j.t, time.Since(began), within)
	m := j.marker()
	require.Equal(j.t, "cancelled", m["status"])
	require.EqualValues(j.t, 20, m["exit_code"])
	require.Equal(j.t, 1, strings.Count(j.stderr.String(), "stop requested"), "one line says so")
	require.NotContains(j.t, j.output(), "could not write")
}

func (j *job) output() string { return j.stdout.String() + j.stderr.String() }

// searchForSecrets first shows that it would find what it looks for where that belongs.
func (j *job) searchForSecrets() {
	j.t.Helper()
	secrets := slices.Clone(j.secrets)
	if _, other := j.envelope["staging"]; j.raw == "" && !other {
		held, err := os.ReadFile(j.creds)
		require.NoError(j.t, err)
		for _, s := range []string{"?tok=", "signature-for-", accessKey} {
			require.Contains(j.t, string(held), s, "the search itself")
		}
	}
	secrets = append(secrets, "?tok=", "signature-for-", accessKey)
	for g := 1; g <= j.generation; g++ {
		secrets = append(secrets, policy(g))
	}
	places := map[string]string{"stdout": j.stdout.String(), "stderr": j.stderr.String()}
	j.store.mu.Lock()
	for i, text := range j.store.documents {
		places[fmt.Sprintf("document %d that was sent", i)] = text
	}
	j.store.mu.Unlock()
	for path, text := range j.left() {
		places[path] = text
	}
	for place, text := range places {
		for _, s := range secrets {
			require.NotContains(j.t, text, s, place)
		}
		if strings.HasPrefix(place, "std") {
			require.NotContains(j.t, text, "\r", place)
			require.NotContains(j.t, text, "\x1b", place)
			require.NotContains(j.t, text, "goroutine ", "a stack trace on "+place)
		}
	}
}

// left gives what the run left in its folders, the credentials excepted: their place is given by the platform.
func (j *job) left() map[string]string {
	j.t.Helper()
	files := map[string]string{}
	require.NoError(j.t, filepath.WalkDir(j.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(j.dir, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(rel, "openai4s-"):
			j.t.Errorf("%s outlived the run", rel)
			return fs.SkipDir
		case d.IsDir() && (path == filepath.Dir(j.creds) || rel == "in"):
			return fs.SkipDir
		case !d.Type().IsRegular() || path == j.agent:
			return nil
		}
		text, err := os.ReadFile(path)
		files[rel] = string(text)
		return err
	}))
	return files
}

const markerName = "__lspo_complete.json"

func (s *store) accepted() []upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.uploads)
}

func (s *store) acceptedNames() []string {
	names := []string{}
	for _, u := range s.accepted() {
		names = append(names, u.name)
	}
	return names
}

// forget empties the staging area, as a next attempt has one of its own.
func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uploads = nil
}

// requests gives the names asked for, of one kind, in order.
func (s *store) requests(kind string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, n := range s.names {
		if name, ok := strings.CutPrefix(n, kind+" "); ok {
			names = append(names, name)
		}
	}
	return names
}

// await waits until request number n of a kind arrived.
func (s *store) await(kind string, n int) {
	s.t.Helper()
	late := time.AfterFunc(30*time.Second, func() { s.mu.Lock(); s.changed.Broadcast(); s.mu.Unlock() })
	defer late.Stop()
	began := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.counts[kind] < n {
		if time.Since(began) > 29*time.Second {
			s.t.Fatalf("%s number %d never came; there were %v", kind, n, s.names)
		}
		s.changed.Wait()
	}
}

func (j *job) body(name string) []byte {
	j.t.Helper()
	for _, u := range slices.Backward(j.store.accepted()) {
		if u.name == name {
			return u.data
		}
	}
	j.t.Fatalf("the store has no %s, only %v; rejected: %v; stderr:\n%s", name, j.store.acceptedNames(), j.store.rejections, j.stderr.String())
	return nil
}

func (j *job) document(name string) doc {
	j.t.Helper()
	var d doc
	require.NoError(j.t, json.Unmarshal(j.body(name), &d))
	return d
}

// marker gives the marker after holding it against the rules of its readers: it is the last object and the only one
// of its name, nothing else was written unnamed, and hashes and sizes are those of what came.
func (j *job) marker() doc {
	j.t.Helper()
	m := j.document(markerName)
	names := j.store.acceptedNames()
	require.Equal(j.t, markerName, names[len(names)-1], "the marker is last: %v", names)
	require.Equal(j.t, 1, count(names, markerName), "the marker is written once")
	require.EqualValues(j.t, 1, m["schema_version"])
	objects := map[string]doc{}
	for _, o := range m["objects"].([]any) {
		o := o.(doc)
		require.NotContains(j.t, objects, o["relpath"], "relpaths are unique")
		objects[o["relpath"].(string)] = o
	}
	for _, u := range j.store.accepted() {
		if u.name == markerName {
			continue
		}
		require.Contains(j.t, objects, u.name, "written and not inventoried")
		require.Equal(j.t, u.sha256, objects[u.name]["sha256"], u.name)
		require.EqualValues(j.t, u.size, objects[u.name]["size"], u.name)
	}
	for port, names := range m["produced_ports"].(doc) {
		seen := map[any]bool{}
		for _, name := range names.([]any) {
			require.Contains(j.t, objects, name, "port %s", port)
			require.False(j.t, seen[name], "port %s names %v twice", port, name)
			seen[name] = true
		}
	}
	if text, ok := m["error"].(string); ok {
		require.LessOrEqual(j.t, len([]rune(text)), 500)
	}
	return m
}

func (j *job) objects() []string {
	j.t.Helper()
	names := []string{}
	for _, o := range j.marker()["objects"].([]any) {
		names = append(names, o.(doc)["relpath"].(string))
	}
	return names
}

// succeeded runs the job and requires a success.
func (j *job) succeeded() {
	j.t.Helper()
	code := j.run()
	require.Equal(j.t, 0, code, "stdout:\n%s\nstderr:\n%s\nrejected: %v", j.stdout.String(), j.stderr.String(), j.store.rejections)
	m := j.marker()
	require.Equal(j.t, "succeeded", m["status"])
	require.EqualValues(j.t, 0, m["exit_code"])
	require.Nil(j.t, m["error"])
}

// failed runs the job, requires the code and a marker that says the same, and gives its error.
func (j *job) failed(code int) string {
	j.t.Helper()
	require.Equal(j.t, code, j.run(), "stdout:\n%s\nstderr:\n%s", j.stdout.String(), j.stderr.String())
	m := j.marker()
	require.Equal(j.t, "failed", m["status"])
	require.EqualValues(j.t, code, m["exit_code"])
	require.NotEmpty(j.t, m["error"])
	return m["error"].(string)
}

func count(names []string, name string) (n int) {
	for _, s := range names {
		if s == name {
			n++
		}
	}
	return n
}

// lockedBuffer is written by a process's copier and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
