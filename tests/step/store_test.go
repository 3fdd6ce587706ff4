package step_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	prefix    = "runs/7/attempts/1/gen-1/"
	accessKey = "AKIACONFORMANCE"
	maxUpload = 256 << 20 // one object of this store
)

// content is what an object holds: bytes, or a stream made up as it is sent.
type content struct {
	data []byte
	size int64                   // of stream
	read func(w io.Writer) error // nil: data
}

func (c content) length() int64 {
	if c.read != nil {
		return c.size
	}
	return int64(len(c.data))
}

// upload is an object the store accepted.
type upload struct {
	name       string // below the prefix
	data       []byte // up to keep bytes
	sha256     string
	size       int64
	generation int
}

// fault may take a request over; it returns true if it did. n counts requests of its kind from 1.
type fault func(s *store, kind, name string, n int, w http.ResponseWriter, r *http.Request) bool

// store is an object store for one job. It believes in nothing: signature and generation, expiry, the form's
// fields, their values and their order, the key's prefix, the length announced and the size allowed are all checked.
type store struct {
	t      *testing.T
	server *httptest.Server
	faults []fault
	gone   chan struct{} // closed when the test is over: ends every held answer

	mu         sync.Mutex
	changed    *sync.Cond
	objects    map[string]content // readable by name
	valid      map[int]time.Time  // generations that are accepted, and until when
	counts     map[string]int
	names      []string // kind and name of every request
	uploads    []upload // accepted, in order
	documents  []string // reports and markers that came, accepted or not
	rejections []string
	active     int
	maxActive  int
}

func newStore(t *testing.T) *store {
	s := &store{t: t, gone: make(chan struct{}), objects: map[string]content{}, valid: map[int]time.Time{}, counts: map[string]int{}}
	s.changed = sync.NewCond(&s.mu)
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		close(s.gone)
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

func signature(generation int, name string) string {
	sum := sha256.Sum256([]byte(fmt.Sprint(generation, name)))
	return fmt.Sprintf("signature-for-%d-%s", generation, hex.EncodeToString(sum[:8]))
}

// getURL signs a read.
func (s *store) getURL(generation int, name string) string {
	return s.server.URL + "/in/" + strings.ReplaceAll(name, " ", "%20") + "?tok=" + signature(generation, name)
}

// formFields signs writes, in an order of its own.
func (s *store) formFields(generation int) [][2]string {
	return [][2]string{
		{"acl", "private"},
		{"key", prefix + "${filename}"},
		{"x-amz-credential", accessKey + fmt.Sprintf("%d/20300101/us-east-1/s3/aws4_request", generation)},
		{"policy", policy(generation)},
		{"x-amz-signature", signature(generation, "post")},
		{"x-amz-meta-ünï", "plain \"quoted\" value"},
	}
}

func policy(generation int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"generation":%d,"conditions":["starts-with","$key",%q]}`, generation, prefix))
}

// allow accepts a generation for d.
func (s *store) allow(generation int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.valid[generation] = time.Now().Add(d)
}

// only accepts this generation and refuses all others.
func (s *store) only(generation int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.valid = map[int]time.Time{generation: time.Now().Add(time.Hour)}
}

func (s *store) live(generation int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.valid[generation]
	return ok && time.Now().Before(until)
}

func (s *store) serve(w http.ResponseWriter, r *http.Request) {
	kind, name := "input", strings.TrimPrefix(r.URL.Path, "/in/")
	var form *form
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/post":
		kind = "upload"
		var err error
		if form, err = readForm(r); err != nil {
			s.note("upload", "?")
			s.reject(w, http.StatusBadRequest, "MalformedPOSTRequest", err.Error())
			return
		}
		name = strings.TrimPrefix(form.key, prefix)
		s.keepDocument(name, form.data)
	case name == "invocation.json":
		kind = "manifest"
	}
	n := s.note(kind, name)
	defer s.leave()
	if !strings.HasPrefix(r.UserAgent(), "openai4s-step") {
		s.reject(w, http.StatusBadRequest, "BadAgent", "no User-Agent that names the program")
		return
	}
	for _, f := range s.faults {
		if f(s, kind, name, n, w, r) {
			return
		}
	}
	if form != nil {
		s.accept(w, form)
		return
	}
	s.give(w, r, name)
}

// note records a request and wakes whoever waits for it.
func (s *store) note(kind, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[kind]++
	s.names = append(s.names, kind+" "+name)
	s.active++
	s.maxActive = max(s.maxActive, s.active)
	s.changed.Broadcast()
	return s.counts[kind]
}

func (s *store) keepDocument(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "result.json" || name == markerName {
		s.documents = append(s.documents, string(data))
	}
}

func (s *store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.changed.Broadcast()
}

func (s *store) give(w http.ResponseWriter, r *http.Request, name string) {
	generation := s.generationOf(func(g int) bool { return r.URL.Query().Get("tok") == signature(g, name) })
	if !s.live(generation) {
		s.reject(w, http.StatusForbidden, "AccessDenied", fmt.Sprintf("read of %s with generation %d", name, generation))
		return
	}
	s.mu.Lock()
	object, ok := s.objects[name]
	s.mu.Unlock()
	if !ok {
		s.reject(w, http.StatusNotFound, "NoSuchKey", name)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(object.length(), 10))
	if object.read != nil {
		_ = object.read(w)
		return
	}
	_, _ = w.Write(object.data)
}

func (s *store) generationOf(signed func(int) bool) int {
	for g := 1; g < 20; g++ {
		if signed(g) {
			return g
		}
	}
	return 0
}

func (s *store) accept(w http.ResponseWriter, f *form) {
	generation := s.generationOf(func(g int) bool { return f.value("x-amz-signature") == signature(g, "post") })
	if !s.live(generation) {
		s.reject(w, http.StatusForbidden, "AccessDenied", fmt.Sprintf("write of %s with generation %d", f.key, generation))
		return
	}
	want := s.formFields(generation)
	got := slices.Clone(f.fields)
	for i, field := range got {
		if field[0] == "key" {
			got[i][1] = prefix + "${filename}"
		}
	}
	switch {
	case !slices.Equal(got, want):
		s.reject(w, http.StatusForbidden, "AccessDenied", fmt.Sprintf("fields are %q, not %q", got, want))
	case !strings.HasPrefix(f.key, prefix) || f.key == prefix:
		s.reject(w, http.StatusForbidden, "AccessDenied", "key outside the prefix: "+f.key)
	case f.size > maxUpload && !strings.HasSuffix(f.key, ".big"):
		s.reject(w, http.StatusBadRequest, "EntityTooLarge", f.key)
	default:
		s.mu.Lock()
		s.uploads = append(s.uploads, upload{strings.TrimPrefix(f.key, prefix), f.data, f.sha256, f.size, generation})
		s.changed.Broadcast()
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *store) reject(w http.ResponseWriter, status int, code, why string) {
	s.mu.Lock()
	s.rejections = append(s.rejections, fmt.Sprintf("%d %s: %s", status, code, why))
	s.mu.Unlock()
	w.WriteHeader(status)
	// A real store quotes the key id and the signature it was sent.
	fmt.Fprintf(w, "<Error><Code>%s</Code><AWSAccessKeyId>%s</AWSAccessKeyId><Signature>%s</Signature></Error>",
		code, accessKey, signature(1, "post"))
}

// form is an upload as it came.
type form struct {
	fields [][2]string
	key    string
	data   []byte
	size   int64
	sha256 string
}

func (f *form) value(name string) string {
	for _, field := range f.fields {
		if field[0] == name {
			return field[1]
		}
	}
	return ""
}

// readForm reads exactly the length that was announced: a chunked body is an empty one here. Fields after the file
// don't count.
func readForm(r *http.Request) (*form, error) {
	if r.ContentLength <= 0 || len(r.TransferEncoding) > 0 {
		return nil, fmt.Errorf("no Content-Length")
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		return nil, fmt.Errorf("Content-Type %q", r.Header.Get("Content-Type"))
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	f := &form{}
	for {
		part, err := parts.NextRawPart()
		if err != nil {
			return nil, fmt.Errorf("no file: %w", err)
		}
		if part.FormName() != "file" {
			value, err := io.ReadAll(part)
			if err != nil {
				return nil, err
			}
			f.fields = append(f.fields, [2]string{part.FormName(), string(value)})
			if part.FormName() == "key" {
				f.key = string(value)
			}
			continue
		}
		if part.Header.Get("Content-Type") != "application/octet-stream" || part.FileName() == "" {
			return nil, fmt.Errorf("file part %v", part.Header)
		}
		hash := sha256.New()
		kept := &keeper{}
		f.size, err = io.CopyBuffer(io.MultiWriter(hash, kept), part, make([]byte, 256<<10))
		if err != nil {
			return nil, err
		}
		f.data, f.sha256 = kept.data, hex.EncodeToString(hash.Sum(nil))
		if _, err := parts.NextRawPart(); err != io.EOF {
			return nil, fmt.Errorf("something follows the file: %v", err)
		}
		if rest, _ := io.ReadAll(r.Body); len(rest) > 2 {
			return nil, fmt.Errorf("%d bytes follow the form", len(rest))
		}
		return f, nil
	}
}

// keeper keeps the first 16 MiB.
type keeper struct{ data []byte }

func (k *keeper) Write(p []byte) (int, error) {
	if room := 16<<20 - len(k.data); room > 0 {
		k.data = append(k.data, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
