package step

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// PublishSpec says what a job publishes and what its marker says.
type PublishSpec struct {
	Workload string // "wl_" and twelve hex digits
	Epoch    int64  // from 0; the marker's attempt is the epoch + 1
	Status   Status
	ExitCode int
	Error    string              // "" for none; cut to 500 characters
	Workdir  string              // where the globs match
	Ports    map[string][]string // port to globs below Workdir; ** crosses folders, a folder gives all its files
	Dest     string              // the folder to publish to; made if it isn't there
}

// Publish copies what the job left to Dest, each file under its path below Workdir, written beside its name, synced
// and renamed; result.json and last the marker follow. An earlier publication in Dest is taken back first: its
// marker, then what it named and this one doesn't write again. Files that no marker named are left alone.
//
// It publishes whatever the status is: a failed or cancelled job's marker says so and names what was produced. An
// error means that Dest has no marker, unless only the last sync of the folder failed.
func Publish(ctx context.Context, spec PublishSpec) error {
	id, err := workloadNumber(spec.Workload)
	if err != nil {
		return err
	}
	globs, err := portGlobs(spec.Ports)
	if err != nil {
		return err
	}
	workdir, dest, err := realFolders(spec.Workdir, spec.Dest)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dest)
	if err != nil {
		return fmt.Errorf("opening the folder to publish to: %w", err)
	}
	defer root.Close()
	earlier, err := retract(root)
	if err != nil {
		return fmt.Errorf("taking back the earlier publication in %s: %w", dest, err)
	}
	p := &publication{root: root, workdir: workdir, made: newInventory(), names: newNameSet(true),
		block: make([]byte, blockSize)}
	// Dest may lie in the workdir: what was published once is no output.
	inDest := func(relpath string) bool { return filepath.Join(workdir, filepath.FromSlash(relpath)) == dest }
	files, err := findOutputs(ctx, workdir, globs, inDest)
	if err != nil {
		return fmt.Errorf("looking for outputs: %w", err)
	}
	for _, f := range files {
		if err := p.publish(ctx, f); err != nil {
			return fmt.Errorf("publishing %s: %w", f.relpath, err)
		}
	}
	if err := p.publishReport(ctx, spec); err != nil {
		return fmt.Errorf("publishing %s: %w", resultName, err)
	}
	p.removeStale(earlier)
	marker, err := spec.marker(id, p.made).encode(maxPublishedMarker)
	if err != nil {
		return fmt.Errorf("composing the marker: %w", err)
	}
	if err := placeFile(ctx, root, markerName, bytes.NewReader(marker), p.block); err != nil {
		return fmt.Errorf("publishing the marker: %w", err)
	}
	return nil
}

func (s PublishSpec) marker(id int64, made *inventory) Marker {
	m := Marker{
		SchemaVersion: schemaVersion, ExecutionID: id, Attempt: s.Epoch + 1, Generation: 1,
		IdempotencyKey: &s.Workload, Workload: s.Workload, Status: s.Status, ExitCode: s.ExitCode,
		Objects: made.objects, ProducedPorts: made.ports,
	}
	if s.Error != "" {
		text := cut(new(redactor).text(s.Error), maxError)
		m.Error = &text
	}
	return m
}

var workloadID = regexp.MustCompile(`\Awl_[0-9a-f]{12}\z`)

// workloadNumber is the workload id's twelve hex digits as an integer.
func workloadNumber(workload string) (int64, error) {
	n, err := int64(0), error(nil)
	if workloadID.MatchString(workload) {
		n, err = strconv.ParseInt(strings.TrimPrefix(workload, "wl_"), 16, 64)
	}
	if err != nil || n < 1 { // a marker's execution_id is at least 1
		return 0, fmt.Errorf("%q is not a workload id: want wl_ and twelve hex digits", workload)
	}
	return n, nil
}

func portGlobs(ports map[string][]string) ([]outputGlob, error) {
	var globs []outputGlob
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		for _, glob := range ports[port] {
			g, err := newOutputGlob(port, glob)
			if err != nil {
				return nil, err
			}
			globs = append(globs, g)
		}
	}
	return globs, nil
}

func realFolders(workdir, dest string) (string, string, error) {
	if err := os.MkdirAll(dest, 0o777); err != nil {
		return "", "", fmt.Errorf("making the folder to publish to: %w", err)
	}
	for _, dir := range []*string{&workdir, &dest} {
		abs, err := filepath.Abs(*dir)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			return "", "", fmt.Errorf("finding the folder %s: %w", *dir, err)
		}
		*dir = abs
	}
	if workdir == dest {
		return "", "", fmt.Errorf("outputs can't be published to the folder they are in, %s; name another in [outputs] publish", dest)
	}
	return workdir, dest, nil
}

// publication is one Publish under way.
type publication struct {
	root    *os.Root
	workdir string
	made    *inventory
	names   *nameSet
	block   []byte
}

// publish hashes a file while it is copied, so that the inventory speaks of the very bytes that were written.
func (p *publication) publish(ctx context.Context, f found) error {
	relpath, err := p.names.claim("", f.ports[0], f.relpath)
	if err != nil {
		return err
	}
	file, err := os.Open(filepath.Join(p.workdir, filepath.FromSlash(f.relpath)))
	if err != nil {
		return err
	}
	r := &hashingReader{r: &frugalReader{f: file}}
	defer file.Close()
	if err := placeFile(ctx, p.root, relpath, r, p.block); err != nil {
		return err
	}
	p.made.record(Object{Relpath: relpath, SHA256: r.sum(), Size: r.size}, f.ports...)
	return nil
}

func (p *publication) publishReport(ctx context.Context, spec PublishSpec) error {
	report := newReport()
	report.metrics["files"] = len(p.made.objects)
	report.metrics["total_bytes"] = p.made.bytes()
	report.summary["workload"] = spec.Workload
	report.summary["epoch"] = spec.Epoch
	report.summary["status"] = spec.Status
	report.summary["exit_code"] = spec.ExitCode
	data, err := report.encode()
	if err != nil {
		return err
	}
	r := &hashingReader{r: bytes.NewReader(data)}
	if err := placeFile(ctx, p.root, resultName, r, p.block); err != nil {
		return err
	}
	p.made.record(Object{Relpath: resultName, SHA256: r.sum(), Size: r.size}, reportPort)
	return nil
}

// retract removes the marker of an earlier publication, so that no moment shows a marker with other files than its
// own, and gives what it named.
func retract(root *os.Root) ([]Object, error) {
	m, err := readMarker(root)
	var malformed *markerMalformed
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil && !errors.As(err, &malformed):
		return nil, err
	}
	if err := root.Remove(markerName); err != nil {
		return nil, err
	}
	return m.Objects, syncDir(root, ".")
}

// removeStale removes what an earlier publication named and this one didn't write. What can't be removed is left
// for Verify to name.
func (p *publication) removeStale(earlier []Object) {
	for _, o := range earlier {
		if !p.made.known[o.Relpath] && CheckRelpath(o.Relpath) == nil {
			if info, err := p.root.Lstat(o.Relpath); err == nil && info.Mode().IsRegular() {
				_ = p.root.Remove(o.Relpath)
			}
		}
	}
}

// markerMalformed is a marker that is there and can't be understood.
type markerMalformed struct{ reason string }

func (m *markerMalformed) Error() string { return m.reason }

func readMarker(root *os.Root) (Marker, error) {
	var m Marker
	info, err := root.Lstat(markerName)
	if err != nil {
		return m, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPublishedMarker {
		return m, &markerMalformed{"it is no file of a marker's size"}
	}
	data, err := root.ReadFile(markerName)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil || m.SchemaVersion != schemaVersion {
		return Marker{}, &markerMalformed{"it is not a marker of version 1"}
	}
	if _, err := m.encode(maxPublishedMarker); err != nil {
		return Marker{}, &markerMalformed{err.Error()}
	}
	return m, nil
}
