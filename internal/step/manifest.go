package step

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// manifest is what this program needs of invocation.json (section 4). Other fields are ignored.
type manifest struct {
	executionID, attempt, generation int64 // 0: absent or not an integer >= 1
	idempotencyKey                   string
	params                           jsontext.Value // an object, verbatim
	paramsFields                     object
}

func parseManifest(data []byte) (manifest, error) {
	var m manifest
	if len(data) > maxInvocation {
		return m, permanentf("%s is over %d bytes", invocationName, maxInvocation)
	}
	v, ok := parse(data)
	if !ok {
		return m, transientf("%s is not JSON", invocationName)
	}
	o, ok := asObject(v)
	if !ok {
		return m, permanentf("%s is not a JSON object", invocationName)
	}
	if !supportedVersion(o) {
		return m, permanentf("%s has a schema_version other than %d", invocationName, schemaVersion)
	}
	m.executionID = positive(o["execution_id"])
	m.attempt = positive(o["attempt"])
	m.generation = positive(o["generation"])
	m.idempotencyKey, _ = asString(o["idempotency_key"])
	m.params = jsontext.Value("{}")
	if p := o["params"]; !isNull(p) {
		m.params = p
	}
	if m.paramsFields, ok = asObject(m.params); !ok {
		return m, permanentf("%s has params that are not an object", invocationName)
	}
	return m, nil
}

func positive(v jsontext.Value) int64 {
	n, ok := asInteger(v)
	if !ok || n < 1 {
		return 0
	}
	return n
}

// identity is what a marker says of the launch it is the receipt of (section 10).
type identity struct {
	ExecutionID, Attempt, Generation int64
	IdempotencyKey                   *string
}

// identify takes each value from the manifest, else from the environment.
func identify(m manifest, getenv func(string) string) (identity, error) {
	id := identity{
		ExecutionID: first(m.executionID, getenv("LSPO_EXECUTION_ID")),
		Attempt:     first(m.attempt, getenv("LSPO_ATTEMPT")),
		Generation:  first(m.generation, getenv("LSPO_GENERATION")),
	}
	if key := m.idempotencyKey; key != "" {
		id.IdempotencyKey = &key
	} else if key := getenv("LSPO_IDEMPOTENCY_KEY"); key != "" {
		id.IdempotencyKey = &key
	}
	if id.ExecutionID == 0 || id.Attempt == 0 || id.Generation == 0 {
		return id, permanentf("neither %s nor the environment says which execution, attempt and generation this is",
			invocationName)
	}
	return id, nil
}

func first(n int64, variable string) int64 {
	if n > 0 {
		return n
	}
	n, err := strconv.ParseInt(variable, 10, 64)
	if err != nil || n < 1 {
		return 0
	}
	return n
}
