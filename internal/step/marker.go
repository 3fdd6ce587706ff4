package step

// Status is what a marker says of a run.
type Status string

// The statuses (section 10).
const (
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Marker is the receipt of a run: the file __lspo_complete.json, written once and last. Everything it names was
// there before it.
type Marker struct {
	Attempt        int64               `json:"attempt"`
	Error          *string             `json:"error"` // at most 500 characters; null on success
	ExecutionID    int64               `json:"execution_id"`
	ExitCode       int                 `json:"exit_code"`
	Generation     int64               `json:"generation"`
	IdempotencyKey *string             `json:"idempotency_key"`
	Objects        []Object            `json:"objects"`
	ProducedPorts  map[string][]string `json:"produced_ports"` // port to relpaths, each in Objects
	SchemaVersion  int                 `json:"schema_version"`
	Status         Status              `json:"status"`
	Workload       string              `json:"workload,omitempty"` // of a published folder
}

// encode refuses what a reader of markers would refuse (section 10): a bad or repeated name, a port that names
// something outside the inventory, more than limit bytes.
func (m Marker) encode(limit int) ([]byte, error) {
	known := make(map[string]bool, len(m.Objects))
	for _, o := range m.Objects {
		if err := CheckRelpath(o.Relpath); err != nil {
			return nil, err
		}
		if known[o.Relpath] || o.Relpath == markerName {
			return nil, permanentf("the inventory can't name %q, or not twice", o.Relpath)
		}
		if !sha256Hex.MatchString(o.SHA256) || o.Size < 0 {
			return nil, permanentf("the inventory has no hash and size of %q", o.Relpath)
		}
		known[o.Relpath] = true
	}
	for port, names := range m.ProducedPorts {
		if _, err := checkPort(port); err != nil {
			return nil, err
		}
		claimed := make(map[string]bool, len(names))
		for _, name := range names {
			if !known[name] || claimed[name] {
				return nil, permanentf("port %q names %q, which the inventory hasn't, or twice", port, name)
			}
			claimed[name] = true
		}
	}
	data, err := document(m)
	if err != nil {
		return nil, permanentf("composing the marker: %w", err)
	}
	if len(data) > limit {
		return nil, permanentf("the marker has %d bytes, over the %d it may have", len(data), limit)
	}
	return data, nil
}
