package step

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The contract's documents are read key by key: unknown keys and unexpected types of keys nobody needs never fail
// a run (section 3), names match exactly, and an integer is an integer and no boolean or 1.0 (section 9).

type object map[string]jsontext.Value

// parse reads one JSON value. ok is false for anything that is no JSON text in UTF-8.
func parse(data []byte) (v jsontext.Value, ok bool) {
	if !utf8.Valid(data) {
		return nil, false
	}
	v = jsontext.Value(data)
	return v, v.IsValid(tolerant...)
}

// tolerant takes duplicate names and escapes of lone surrogates, as other readers of these documents do.
var tolerant = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func asObject(v jsontext.Value) (object, bool) {
	if len(v) == 0 || v.Kind() != '{' {
		return nil, false
	}
	var o object
	if err := jsonv2.Unmarshal(v, &o, jsonv2.JoinOptions(tolerant...)); err != nil {
		return nil, false
	}
	return o, true
}

func asArray(v jsontext.Value) ([]jsontext.Value, bool) {
	if len(v) == 0 || v.Kind() != '[' {
		return nil, false
	}
	var a []jsontext.Value
	if err := jsonv2.Unmarshal(v, &a, jsonv2.JoinOptions(tolerant...)); err != nil {
		return nil, false
	}
	return a, true
}

func asString(v jsontext.Value) (string, bool) {
	if len(v) == 0 || v.Kind() != '"' {
		return "", false
	}
	var s string
	if err := jsonv2.Unmarshal(v, &s, jsonv2.JoinOptions(tolerant...)); err != nil {
		return "", false
	}
	return s, true
}

// asInteger takes a JSON integer written without fraction and exponent.
func asInteger(v jsontext.Value) (int64, bool) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
	return n, err == nil && len(v) > 0 && v.Kind() == '0'
}

func isNull(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }

// supportedVersion holds a document's schema_version against the only one there is; an absent one means 1.
func supportedVersion(o object) bool {
	v, present := o["schema_version"]
	if !present {
		return true
	}
	n, ok := asInteger(v)
	return ok && n == schemaVersion
}

// document encodes v with sorted keys and an indent of two blanks (section 17).
func document(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
