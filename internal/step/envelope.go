package step

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// How a staging area is written to.
const (
	modePost  = "presigned_post"
	modeLocal = "local_path"
)

// envelope is one credentials document (section 3), as it stood in the file at one moment.
type envelope struct {
	raw       string    // the whole document, to tell a renewed one from the same one
	expires   time.Time // zero: already expired
	manifest  location
	inputs    []input
	mode      string // modePost or modeLocal
	post      postForm
	localPath string
}

// location says where a document or an object is read. A URL goes before a path; the scheme field isn't consulted.
type location struct {
	url  string
	path string
}

// input is an entry of the envelope's list.
type input struct {
	port   string
	name   string // relpath, else name, else input-<index> (section 5)
	sha256 string // "" where the entry pins nothing
	size   int64  // -1 where the entry pins none
	from   location
}

// same reports whether two envelopes speak of one input.
func (i input) same(j input) bool {
	return i.port == j.port && i.name == j.name && i.sha256 == j.sha256
}

type postForm struct {
	url    string
	fields []formField // in the document's order, which the store may insist on
	prefix string
}

type formField struct{ name, value string }

// credentialsPath chooses the envelope's path (section 2). disagree is true when both variables are set to
// different files.
func credentialsPath(getenv func(string) string) (path string, disagree bool) {
	current, old := getenv("LSPO_CREDENTIALS_FILE"), getenv("LSPO_CREDENTIALS")
	disagree = current != "" && old != "" && filepath.Clean(current) != filepath.Clean(old)
	switch {
	case current != "":
		return current, disagree
	case old != "":
		return old, false
	default:
		return defaultCredentialsFile, false
	}
}

// readEnvelope opens the exact path anew: the file is replaced by rename while the step runs (section 2).
func readEnvelope(path string) (*envelope, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, transientf("reading the credentials file: %w", pathless(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxEnvelope))
	if err != nil {
		return nil, transientf("reading the credentials file: %w", pathless(err))
	}
	return parseEnvelope(data)
}

func parseEnvelope(data []byte) (*envelope, error) {
	v, ok := parse(data)
	if !ok {
		return nil, transientf("the credentials file is not JSON")
	}
	doc, ok := asObject(v)
	if !ok {
		return nil, transientf("the credentials file is not a JSON object")
	}
	if !supportedVersion(doc) {
		return nil, permanentf("the credentials envelope has a schema_version other than %d", schemaVersion)
	}
	staging, ok := asObject(doc["staging"])
	if !ok {
		return nil, permanentf("the credentials envelope has no staging area")
	}
	e := &envelope{raw: string(data), manifest: readLocation(doc, "manifest_get", "manifest_path")}
	if text, ok := asString(doc["expires_at"]); ok {
		e.expires = parseTime(text)
	}
	e.mode, _ = asString(staging["mode"])
	var err error
	switch e.mode {
	case modePost:
		e.post, err = readForm(staging["post"])
	case modeLocal:
		e.localPath, ok = asString(staging["path"])
		if !ok || e.localPath == "" {
			err = permanentf("the credentials envelope's staging area has no path")
		}
	default:
		err = permanentf("the credentials envelope's staging mode is neither %s nor %s", modePost, modeLocal)
	}
	if err != nil {
		return nil, err
	}
	e.inputs, err = readInputs(doc["inputs"])
	return e, err
}

func readInputs(v jsontext.Value) ([]input, error) {
	if isNull(v) {
		return nil, nil
	}
	entries, ok := asArray(v)
	if !ok {
		return nil, permanentf("the credentials envelope's inputs are not a list")
	}
	inputs := make([]input, 0, len(entries))
	for i, entry := range entries {
		o, ok := asObject(entry)
		if !ok {
			return nil, permanentf("the credentials envelope's input %d is not an object", i)
		}
		in := input{port: inputPort, size: -1, from: readLocation(o, "get_url", "local_path")}
		if p, ok := asString(o["port"]); ok && strings.TrimSpace(p) != "" {
			in.port = p
		}
		if in.name, _ = asString(o["relpath"]); in.name == "" {
			in.name, _ = asString(o["name"])
		}
		if in.name == "" {
			in.name = "input-" + strconv.Itoa(i)
		}
		in.sha256, _ = asString(o["sha256"])
		if n, ok := asInteger(o["size"]); ok {
			in.size = max(n, 0)
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

func readLocation(o object, urlKey, pathKey string) location {
	var l location
	l.url, _ = asString(o[urlKey])
	l.path, _ = asString(o[pathKey])
	return l
}

func readForm(v jsontext.Value) (postForm, error) {
	var f postForm
	o, ok := asObject(v)
	if !ok {
		return f, permanentf("the credentials envelope's staging area has no post form")
	}
	f.url, _ = asString(o["url"])
	f.prefix, _ = asString(o["key_prefix"])
	if f.url == "" || f.prefix == "" {
		return f, permanentf("the credentials envelope's post form lacks url or key_prefix")
	}
	var err error
	f.fields, err = readFields(o["fields"])
	return f, err
}

// readFields keeps the order of the object's members.
func readFields(v jsontext.Value) ([]formField, error) {
	malformed := permanentf("the credentials envelope's post fields are not an object of strings")
	if len(v) == 0 || v.Kind() != '{' {
		return nil, malformed
	}
	dec := jsontext.NewDecoder(strings.NewReader(string(v)), tolerant...)
	if _, err := dec.ReadToken(); err != nil {
		return nil, malformed
	}
	var fields []formField
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, malformed
		}
		field := formField{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, malformed
		}
		switch value.Kind() {
		case '"':
			field.value, _ = asString(value)
		case '0', 't', 'f':
			field.value = string(value)
		default:
			return nil, malformed
		}
		fields = append(fields, field)
	}
	return fields, nil
}

// timeForms are the ISO 8601 forms understood in expires_at; fractions of a second are taken wherever seconds stand.
var timeForms = []string{
	"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07", "2006-01-02T15:04:05",
	"2006-01-02T15:04Z07:00", "2006-01-02T15:04",
	"20060102T150405Z07:00", "20060102T150405Z0700", "20060102T150405", "2006-01-02",
}

// parseTime gives the zero time, long past, for what it can't read. A time without offset is UTC.
func parseTime(text string) time.Time {
	text = strings.Replace(strings.ToUpper(strings.TrimSpace(text)), " ", "T", 1)
	for _, form := range timeForms {
		if t, err := time.Parse(form, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

// pathless drops the path from an error of the file system: the credentials' path is nobody's business.
func pathless(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}
