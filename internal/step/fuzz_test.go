package step

import (
	"strings"
	"testing"
)

// What an orchestrator or a store sends may be anything: no reader may crash or accept what it can't keep.

func FuzzEnvelope(f *testing.F) {
	f.Add(`{"schema_version":1,"expires_at":"2026-01-01T00:00:00Z","staging":{"mode":"presigned_post","post":{"url":"http://h/","fields":{"key":"k","n":1},"key_prefix":"p/"}},"inputs":[{"relpath":"a","size":1}]}`)
	f.Add(`{"staging":{"mode":"local_path","path":"/x"},"inputs":[{"size":-1,"sha256":7}]}`)
	f.Add(`{"staging":{"mode":"presigned_post","post":{"url":"u","key_prefix":"p","fields":{"a":"\ud800","a":null}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseEnvelope([]byte(text))
		if err != nil {
			if code := exitCode(err); code != ExitTransient && code != ExitPermanent {
				t.Fatalf("code %d", code)
			}
			return
		}
		for _, in := range e.inputs {
			if in.name == "" || in.port == "" {
				t.Fatalf("an input without a name or port: %+v", in)
			}
		}
		var r redactor
		r.learn(e)
	})
}

func FuzzManifest(f *testing.F) {
	f.Add(`{"execution_id":1,"attempt":1,"generation":1,"params":{"a":[1.0]}}`)
	f.Add(`{"params":{"a":1,"a":2},"execution_id":99999999999999999999}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseManifest([]byte(text))
		if err != nil {
			return
		}
		r := newReport()
		r.params = m.params
		data, err := r.encode()
		if err == nil && len(data) > maxResult {
			t.Fatalf("a report of %d bytes", len(data))
		}
	})
}

func FuzzRedaction(f *testing.F) {
	f.Add("see https://u:p@h/x?sig=1#2 and s3://b/k#f, HTTP://H?x")
	f.Add("a\r\nb\x1b[1m\u202e http://?")
	f.Fuzz(func(t *testing.T, text string) {
		got := new(redactor).text(text)
		for _, url := range anyURL.FindAllString(got, -1) {
			if strings.ContainsAny(url, "?#") {
				t.Fatalf("%q keeps a query", got)
			}
		}
		if strings.ContainsAny(got, "\r\n\x1b\x00") {
			t.Fatalf("%q keeps control characters", got)
		}
	})
}

func FuzzFact(f *testing.F) {
	f.Add(`{"key":"a","value":"x","meta":{"k":1}}`)
	f.Add(`{"key":"a","value":"\ud800"}`)
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := parse([]byte(text))
		if !ok {
			return
		}
		r := newReport()
		r.facts.claim(v)
		if _, err := r.encode(); err != nil {
			t.Fatalf("%q was claimed and can't be written: %v", text, err)
		}
	})
}
