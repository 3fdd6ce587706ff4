package step_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLargeParamsAreDroppedFromTheReport(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	params := doc{"payload": strings.Repeat("x", 3<<20)}
	for i := range 99 {
		params[fmt.Sprintf("p%02d", i)] = i
	}
	j.manifest["params"] = params
	j.succeeded()
	require.LessOrEqual(t, len(j.body("result.json")), 1<<20)
	summary := j.document("result.json")["summary"].(doc)
	require.Nil(t, summary["params"])
	require.Contains(t, summary, "params_omitted")
	require.EqualValues(t, 100, summary["params_count"])
	require.Len(t, summary["params_keys"], 64)
	require.NotContains(t, summary, "facts_omitted", "only causes that apply")
	require.NotContains(t, summary, "facts_not_claimed")
}

func TestParamsReachTheReportVerbatim(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	j.store.objects["invocation.json"] = content{data: []byte(
		`{"params":{"f":1.10,"big":123456789012345678901234567890,"e":1e400,"u":"\u0416<&>\ud800","n":null,"b":true}}`)}
	j.succeeded()
	for _, text := range []string{`1.10`, `123456789012345678901234567890`, `1e400`, `\u0416<&>\ud800`} {
		require.Contains(t, string(j.body("result.json")), text)
	}
}

func TestReportOfAFailureComesBeforeTheMarkerAndIsNamedOnceAccepted(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2", pin: doc{"sha256": strings.Repeat("0", 64)}})
	j.failed(10)
	require.Equal(t, []string{"outputs/a", "result.json", markerName}, j.store.acceptedNames())
	require.Equal(t, []string{"outputs/a", "result.json"}, j.objects())
	require.EqualValues(t, 1, j.document("result.json")["metrics"].(doc)["files"])
}

func TestReportOfAFailureThatIsRefusedCostsOneLine(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1", pin: doc{"sha256": strings.Repeat("0", 64)}})
	j.store.faults = []fault{named("result.json", answer(503, "SlowDown"))}
	j.failed(10)
	require.Equal(t, 1, strings.Count(j.stderr.String(), "could not write result.json"))
	require.Empty(t, j.objects())
}

func TestReportThatIsRefusedFailsFinishedWork(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.faults = []fault{named("result.json", answer(503, "SlowDown"))}
	require.Contains(t, j.failed(1), "result.json")
	require.Equal(t, 1, count(j.store.requests("upload"), "result.json"), "an upload is never repeated")
	require.Equal(t, []string{"outputs/a", "result.json"}, j.objects(), "recorded before it began")
}

// factsOf runs a command that leaves facts and gives the report.
func factsOf(t *testing.T, facts string) doc {
	t.Helper()
	j := newJob(t)
	file := filepath.Join(j.dir, "left.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"metrics":{"loss":0.5,"files":99},"summary":{"note":"ok"},"facts":`+facts+`}`), 0o600))
	j.args = []string{"--", "cp", file, "result.json"}
	j.succeeded()
	result := j.document("result.json")
	require.LessOrEqual(t, len(j.body("result.json")), 1<<20)
	require.Equal(t, 0.5, result["metrics"].(doc)["loss"])
	require.EqualValues(t, 0, result["metrics"].(doc)["files"], "ours")
	require.Equal(t, "ok", result["summary"].(doc)["note"])
	return result
}

func TestFactsThatThePlatformWouldDropAreLeftOutAndCounted(t *testing.T) {
	t.Parallel()
	long, longKey := strings.Repeat("v", 513), strings.Repeat("k", 65)
	meta := func(n int) string {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf(`"k%d":1`, i))
		}
		return "{" + strings.Join(keys, ",") + "}"
	}
	for name, c := range map[string]struct {
		entry string
		cause string // "": taken
	}{
		"a string":               {`{"key":"a","value":"x"}`, ""},
		"an integer":             {`{"key":"a_1","value":-12}`, ""},
		"512 characters":         {`{"key":"a","value":"` + strings.Repeat("日", 512) + `"}`, ""},
		"a key of 64":            {`{"key":"` + strings.Repeat("k", 64) + `","value":1}`, ""},
		"a flat meta":            {`{"key":"a","value":1,"meta":{"s":"","n":1.5,"b":true,"z":null}}`, ""},
		"an empty meta":          {`{"key":"a","value":1,"meta":{}}`, ""},
		"a meta of 32":           {`{"key":"a","value":1,"meta":` + meta(32) + `}`, ""},
		"a boolean":              {`{"key":"a","value":true}`, "unusable_value"},
		"a fraction":             {`{"key":"a","value":1.5}`, "unusable_value"},
		"an exponent":            {`{"key":"a","value":1e3}`, "unusable_value"},
		"a null":                 {`{"key":"a","value":null}`, "unusable_value"},
		"no value":               {`{"key":"a"}`, "unusable_value"},
		"a list":                 {`{"key":"a","value":[]}`, "unusable_value"},
		"blank":                  {`{"key":"a","value":" \u00a0 "}`, "unusable_value"},
		"513 characters":         {`{"key":"a","value":"` + long + `"}`, "unusable_value"},
		"a line break":           {`{"key":"a","value":"x\ny"}`, "unusable_value"},
		"a delete":               {`{"key":"a","value":"x\u007fy"}`, "unusable_value"},
		"a lone surrogate":       {`{"key":"a","value":"x\ud800y"}`, "unusable_value"},
		"meta null":              {`{"key":"a","value":1,"meta":null}`, "unusable_value"},
		"meta of a list":         {`{"key":"a","value":1,"meta":[]}`, "unusable_value"},
		"meta that nests":        {`{"key":"a","value":1,"meta":{"x":{}}}`, "unusable_value"},
		"meta of 33":             {`{"key":"a","value":1,"meta":` + meta(33) + `}`, "unusable_value"},
		"meta with an empty key": {`{"key":"a","value":1,"meta":{"":1}}`, "unusable_value"},
		"meta with a long key":   {`{"key":"a","value":1,"meta":{"` + longKey + `":1}}`, "unusable_value"},
		"meta with a long value": {`{"key":"a","value":1,"meta":{"k":"` + long + `"}}`, "unusable_value"},
		"meta beyond all bounds": {`{"key":"a","value":1,"meta":{"k":1e999}}`, "unusable_value"},
		"no object":              {`"a"`, "unusable_value"},
		"a capital":              {`{"key":"A","value":1}`, "bad_key"},
		"a digit first":          {`{"key":"1a","value":1}`, "bad_key"},
		"a line break in a key":  {`{"key":"a\n","value":1}`, "bad_key"},
		"a key of 65":            {`{"key":"` + longKey + `","value":1}`, "bad_key"},
		"no key":                 {`{"value":1}`, "bad_key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := factsOf(t, "["+c.entry+"]")
			summary := result["summary"].(doc)
			if c.cause == "" {
				var want any
				require.NoError(t, json.Unmarshal([]byte(c.entry), &want))
				require.Equal(t, []any{want}, result["facts"])
				require.NotContains(t, summary, "facts_not_claimed")
				return
			}
			require.Equal(t, []any{}, result["facts"])
			require.Equal(t, doc{c.cause: 1.0}, summary["facts_not_claimed"])
		})
	}
}

func TestFactsBeyondTheCapKeepTheEarliest(t *testing.T) {
	t.Parallel()
	var entries []string
	for i := range 10_003 {
		entries = append(entries, fmt.Sprintf(`{"key":"k","value":%d}`, i))
	}
	result := factsOf(t, "["+strings.Join(entries, ",")+"]")
	facts := result["facts"].([]any)
	require.Len(t, facts, 10_000)
	require.EqualValues(t, 9_999, facts[9_999].(doc)["value"])
	require.Equal(t, doc{"over_the_cap": 3.0}, result["summary"].(doc)["facts_not_claimed"])
}

func TestFactsTooLargeForTheReportAreHalved(t *testing.T) {
	t.Parallel()
	var entries []string
	for i := range 6000 {
		entries = append(entries, fmt.Sprintf(`{"key":"k","value":"%05d%s"}`, i, strings.Repeat("x", 400)))
	}
	entries = append(entries, `{"key":"k","value":false}`)
	result := factsOf(t, "["+strings.Join(entries, ",")+"]")
	require.Len(t, result["facts"], 1500)
	summary := result["summary"].(doc)
	require.EqualValues(t, 4500, summary["facts_omitted"])
	require.Equal(t, doc{"unusable_value": 1.0}, summary["facts_not_claimed"])
	require.NotContains(t, summary, "params_omitted", "there were none to leave out")
}

func TestReportThatCannotFitIsRefused(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	file := filepath.Join(j.dir, "left.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"summary":{"note":"`+strings.Repeat("x", 1<<20)+`"}}`), 0o600))
	j.args = []string{"--", "cp", file, "result.json"}
	require.Contains(t, j.failed(10), "1048576")
	require.Empty(t, j.store.requests("upload")[1:])
}
