package step

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var (
	factKey = regexp.MustCompile(`\A[a-z][a-z0-9_]{0,63}\z`)
	// A JSON integer: no fraction, no exponent.
	factInteger = regexp.MustCompile(`\A-?(?:0|[1-9][0-9]*)\z`)
)

// fact is one claim of the result document (section 11). Value and Meta are kept as they were written.
type fact struct {
	Key   string          `json:"key"`
	Meta  json.RawMessage `json:"meta,omitempty"`
	Value json.RawMessage `json:"value"`
}

// facts applies the platform's own rules, which drop a bad entry silently, and counts what it left out.
type facts struct {
	kept                         []fact
	unusable, badKey, overTheCap int
}

// claim takes an entry {"key","value","meta"?} if the platform would.
func (f *facts) claim(entry jsontext.Value) {
	o, ok := asObject(entry)
	if !ok {
		f.unusable++
		return
	}
	key, ok := asString(o["key"])
	if !ok || !factKey.MatchString(key) {
		f.badKey++
		return
	}
	meta, hasMeta := o["meta"]
	if !usableValue(o["value"]) || hasMeta && !usableMeta(meta) {
		f.unusable++
		return
	}
	if len(f.kept) >= maxFacts {
		f.overTheCap++
		return
	}
	f.kept = append(f.kept, fact{Key: key, Value: json.RawMessage(o["value"]), Meta: json.RawMessage(meta)})
}

// unclaimed gives the counts by cause, only those that apply; nil for none.
func (f *facts) unclaimed() map[string]any {
	counts := map[string]any{}
	for cause, n := range map[string]int{"unusable_value": f.unusable, "bad_key": f.badKey, "over_the_cap": f.overTheCap} {
		if n > 0 {
			counts[cause] = n
		}
	}
	if len(counts) == 0 {
		return nil
	}
	return counts
}

func usableValue(v jsontext.Value) bool {
	if len(v) == 0 {
		return false
	}
	if v.Kind() == '0' {
		return factInteger.Match(v) && len(v) <= maxFactValue
	}
	s, ok := plainString(v)
	return ok && strings.TrimSpace(s) != ""
}

// plainString takes a string of at most maxFactValue characters without control characters and lone surrogates.
func plainString(v jsontext.Value) (string, bool) {
	if len(v) == 0 || v.Kind() != '"' {
		return "", false
	}
	var s string
	if err := jsonv2.Unmarshal(v, &s); err != nil { // strict: a lone surrogate is an error here
		return "", false
	}
	bad := strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
	return s, !bad && utf8.RuneCountInString(s) <= maxFactValue
}

func usableMeta(v jsontext.Value) bool {
	o, ok := asObject(v)
	if !ok || len(o) > maxMetaKeys {
		return false
	}
	for key, value := range o {
		if n := utf8.RuneCountInString(key); n < 1 || n > maxMetaKey {
			return false
		}
		switch value.Kind() {
		case '"':
			if _, ok := plainString(value); !ok {
				return false
			}
		case '0':
			var f float64
			if json.Unmarshal(value, &f) != nil || !finite(f) {
				return false
			}
		case 't', 'f', 'n':
		default:
			return false
		}
	}
	return true
}
