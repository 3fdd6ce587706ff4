package step_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHelloCopiesEachInputReportsAndWritesTheMarkerLast(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a.csv", data: "1\n2\n"}, in{name: "b.csv", data: "x"})
	j.manifest["params"] = doc{"label": "проверка", "n": 0.75, "null": nil}
	j.succeeded()
	require.Equal(t, []string{"outputs/a.csv", "outputs/b.csv", "result.json", markerName}, j.store.acceptedNames())
	require.Equal(t, "1\n2\n", string(j.body("outputs/a.csv")))
	m := j.marker()
	require.Equal(t, doc{"output": []any{"outputs/a.csv", "outputs/b.csv"}, "report": []any{"result.json"}}, m["produced_ports"])
	require.EqualValues(t, 7, m["execution_id"])
	require.EqualValues(t, 1, m["attempt"])
	require.EqualValues(t, 1, m["generation"])
	require.Equal(t, "key-7-1", m["idempotency_key"])
	result := j.document("result.json")
	require.Equal(t, doc{"files": 2.0, "total_bytes": 5.0, "lines": 2.0}, result["metrics"])
	require.Equal(t, doc{"attempt": 1.0, "params": doc{"label": "проверка", "n": 0.75, "null": nil}}, result["summary"])
	require.Equal(t, []any{}, result["facts"])
}
