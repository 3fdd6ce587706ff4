package step

import (
	"context"
	"io"
	"os"
)

// open reads a location of the contract: a URL goes before a path.
func (c *client) open(ctx context.Context, l location) (io.ReadCloser, error) {
	switch {
	case l.url != "":
		return c.get(ctx, l.url)
	case l.path != "":
		f, err := os.Open(l.path)
		if err != nil {
			return nil, transientf("%w", pathless(err))
		}
		return &frugalReader{f: f}, nil
	}
	return nil, permanentf("the credentials envelope says neither by URL nor by path where it is")
}

// fetchManifest reads invocation.json and one byte beyond its limit.
func (r *run) fetchManifest(ctx context.Context) (manifest, error) {
	var data []byte
	err := r.creds.renewing(func(e *envelope) error {
		body, err := r.client.open(ctx, e.manifest)
		if err != nil {
			return err
		}
		defer body.Close()
		data, err = io.ReadAll(io.LimitReader(body, maxInvocation+1))
		return err
	})
	if err != nil {
		return manifest{}, naming(err, "reading %s", invocationName)
	}
	return parseManifest(data)
}

// fetchInput brings input number i of the list to a file and holds it against its pin (section 5). The file is
// gone again when that fails.
func (r *run) fetchInput(ctx context.Context, i int, pinned input, path string) (measured, error) {
	if pinned.sha256 == "" {
		return measured{}, permanentf("input %s has no sha256: the job pinned nothing to hold it against", pinned.name)
	}
	if !sha256Hex.MatchString(pinned.sha256) {
		return measured{}, permanentf("input %s has a sha256 that is not 64 lower-case hex digits", pinned.name)
	}
	var got measured
	err := r.creds.renewing(func(e *envelope) error {
		in, err := e.find(i, pinned)
		if err != nil {
			return err
		}
		got, err = r.fetchTo(ctx, in.from, pinned, path)
		return err
	})
	if err != nil {
		_ = os.Remove(path)
		return got, naming(err, "reading input %s", pinned.name)
	}
	if err := checkPin(pinned, got); err != nil {
		_ = os.Remove(path)
		return got, err
	}
	return got, nil
}

// find gives the entry of this envelope for an input of the first one.
func (e *envelope) find(i int, pinned input) (input, error) {
	if i < len(e.inputs) && e.inputs[i].same(pinned) {
		return e.inputs[i], nil
	}
	for _, in := range e.inputs {
		if in.same(pinned) {
			return in, nil
		}
	}
	return input{}, permanentf("the renewed credentials envelope no longer lists it")
}

func (r *run) fetchTo(ctx context.Context, from location, pinned input, path string) (measured, error) {
	body, err := r.client.open(ctx, from)
	if err != nil {
		return measured{}, err
	}
	defer body.Close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return measured{}, transientf("making a scratch file: %w", pathless(err))
	}
	defer f.Close()
	var bytes io.Reader = body
	if pinned.size >= 0 {
		bytes = io.LimitReader(body, pinned.size+1) // one byte too many is enough to know
	}
	w := &frugalWriter{f: f}
	got, err := measure(w, bytes, r.block, func() error { return ended(ctx) })
	if err != nil {
		return got, err
	}
	if got.size >= blockSize {
		err = w.settle()
	}
	return got, err
}

func checkPin(pinned input, got measured) error {
	switch {
	case pinned.size >= 0 && got.size > pinned.size:
		return permanentf("input %s is larger than the %d bytes the job pinned", pinned.name, pinned.size)
	case pinned.size >= 0 && got.size < pinned.size:
		return permanentf("input %s has %d bytes, the job pinned %d", pinned.name, got.size, pinned.size)
	case got.sha256 != pinned.sha256:
		return permanentf("input %s hashes to %s, the job pinned %s", pinned.name, got.sha256, pinned.sha256)
	}
	return nil
}
