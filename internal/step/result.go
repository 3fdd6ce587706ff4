package step

import (
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// report becomes result.json (section 11).
type report struct {
	metrics map[string]any
	summary map[string]any
	params  jsontext.Value // nil: no echo
	facts   facts
}

func newReport() *report {
	return &report{metrics: map[string]any{}, summary: map[string]any{}}
}

// absorb takes over what a command left in its own result document: metrics and summary beside ours, and its facts.
func (r *report) absorb(doc object) {
	for _, part := range []struct {
		key  string
		into map[string]any
	}{{"metrics", r.metrics}, {"summary", r.summary}} {
		fields, _ := asObject(doc[part.key])
		for name, value := range fields {
			if _, ours := part.into[name]; !ours {
				part.into[name] = json.RawMessage(value)
			}
		}
	}
	entries, _ := asArray(doc["facts"])
	for _, entry := range entries {
		r.facts.claim(entry)
	}
}

// encode fits the document into its limit, in the order the contract fixes: first the echo of params goes, then
// facts are halved until it fits, else it is refused. The summary names only the causes that applied.
func (r *report) encode() ([]byte, error) {
	summary := make(map[string]any, len(r.summary)+6)
	for k, v := range r.summary {
		summary[k] = v
	}
	if unclaimed := r.facts.unclaimed(); unclaimed != nil {
		summary["facts_not_claimed"] = unclaimed
	}
	if r.params != nil {
		summary["params"] = json.RawMessage(r.params)
	}
	kept := r.facts.kept
	data, err := r.compose(summary, kept)
	if err != nil || len(data) <= maxResult {
		return data, err
	}
	if fields, ok := asObject(r.params); ok && len(fields) > 0 {
		omitParams(summary, fields)
		if data, err = r.compose(summary, kept); err != nil || len(data) <= maxResult {
			return data, err
		}
	}
	for len(kept) > 0 {
		kept = kept[:len(kept)/2]
		summary["facts_omitted"] = len(r.facts.kept) - len(kept)
		if data, err = r.compose(summary, kept); err != nil || len(data) <= maxResult {
			return data, err
		}
	}
	return nil, permanentf("%s has %d bytes, over the %d it may have", resultName, len(data), maxResult)
}

func omitParams(summary map[string]any, fields object) {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, cut(name, paramsKeyWidth))
	}
	slices.Sort(names)
	summary["params"] = nil
	summary["params_omitted"] = "too large for the result document"
	summary["params_count"] = len(fields)
	summary["params_keys"] = names[:min(len(names), maxParamsKeys)]
}

func (r *report) compose(summary map[string]any, kept []fact) ([]byte, error) {
	if kept == nil {
		kept = []fact{}
	}
	data, err := document(map[string]any{
		"schema_version": schemaVersion,
		"metrics":        r.metrics,
		"summary":        summary,
		"facts":          kept,
	})
	if err != nil {
		return nil, permanentf("composing %s: %w", resultName, err)
	}
	return data, nil
}
