package step_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInvocationThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		code int
		says string
	}{
		"an error page":    {"<html>expired</html>", 1, "not JSON"},
		"nothing":          {"", 1, "not JSON"},
		"a list":           {"[]", 10, "not a JSON object"},
		"version true":     {`{"schema_version":true}`, 10, "schema_version"},
		"version 2":        {`{"schema_version":2}`, 10, "schema_version"},
		"params of a list": {`{"params":[]}`, 10, "params"},
		"over 8 MiB":       {`{"pad":"` + strings.Repeat("x", 8<<20) + `"}`, 10, "8388608"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a.csv", data: "a\n"})
			j.store.objects["invocation.json"] = content{data: []byte(c.text)}
			require.Contains(t, j.failed(c.code), c.says)
			require.Empty(t, j.store.requests("input"))
			m := j.marker()
			require.EqualValues(t, 7, m["execution_id"], "from the environment")
			require.Equal(t, "key-of-env", m["idempotency_key"])
		})
	}
}

func TestInvocationOfExactly8MiBIsRead(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	head, tail := `{"execution_id":7,"attempt":1,"generation":1,"pad":"`, `"}`
	j.store.objects["invocation.json"] = content{data: []byte(head + strings.Repeat("x", 8<<20-len(head)-len(tail)) + tail)}
	j.succeeded()
}

func TestInvocationsUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a.csv", data: "a\n"})
	j.manifest["scheduling_class"], j.manifest["tenant"], j.manifest["Params"] = "batch", doc{"id": 4}, 3
	j.succeeded()
}

func TestMarkersIdentityIsTheManifestsElseTheEnvironments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		manifest doc
		env      []string
		want     [3]float64
		key      any
	}{
		"the manifest's":                   {doc{"execution_id": 8181, "attempt": 3, "generation": 2}, nil, [3]float64{8181, 3, 2}, "key-7-1"},
		"the environment's for what lacks": {doc{"execution_id": nil, "idempotency_key": nil}, []string{"LSPO_EXECUTION_ID=99"}, [3]float64{99, 1, 1}, "key-of-env"},
		"a boolean is no number":           {doc{"attempt": true}, []string{"LSPO_ATTEMPT=5"}, [3]float64{7, 5, 1}, "key-7-1"},
		"nor is a zero":                    {doc{"generation": 0}, []string{"LSPO_GENERATION=6"}, [3]float64{7, 1, 6}, "key-7-1"},
		"no key at all":                    {doc{"idempotency_key": nil}, []string{"LSPO_IDEMPOTENCY_KEY="}, [3]float64{7, 1, 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t)
			override(j.manifest, c.manifest)
			j.env = c.env
			j.succeeded()
			m := j.marker()
			require.Equal(t, c.want, [3]float64{m["execution_id"].(float64), m["attempt"].(float64), m["generation"].(float64)})
			require.Equal(t, c.key, m["idempotency_key"])
		})
	}
}

func TestNoUsableIdentityMeansNoMarkerAndPermanent(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a.csv", data: "a\n"})
	j.manifest["execution_id"] = 1.5
	j.env = []string{"LSPO_EXECUTION_ID=seven"}
	require.Equal(t, 10, j.run(), j.output())
	require.NotContains(t, j.store.acceptedNames(), markerName)
	require.Contains(t, j.stderr.String(), "no marker")
}
