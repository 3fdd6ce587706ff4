package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of the work folder that are ours and no output.
const (
	inputsDir   = "inputs"
	inputsFile  = "inputs.json"
	paramsFile  = "params.json"
	commandPart = 0.8 // of the whole run's progress; staging and publishing take a tenth each
)

// hiddenVariables don't reach a command: it has no use for the step's credentials.
var hiddenVariables = []string{"LSPO_CREDENTIALS_FILE=", "LSPO_CREDENTIALS="}

// commandWork stages all inputs into a folder, runs a command there and publishes what its globs match.
type commandWork struct {
	argv    []string
	dir     string // "": a folder of the run's scratch
	outputs []outputGlob
}

// stagedInput is an entry of inputs.json, which tells a command what it got.
type stagedInput struct {
	Name   string `json:"name"`
	Path   string `json:"path"` // below the work folder
	Port   string `json:"port"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

func (c commandWork) do(ctx context.Context, r *run) error {
	dir, err := c.workFolder(r)
	if err != nil {
		return err
	}
	if err := stageInputs(ctx, r, dir); err != nil {
		return err
	}
	if err := writePrivate(filepath.Join(dir, paramsFile), r.manifest.params); err != nil {
		return err
	}
	cmd := command{argv: c.argv, dir: dir, env: c.environment(dir), line: r.relay}
	end, err := cmd.run(ctx, stopGrace)
	if err != nil {
		return err
	}
	if err := stopped(ctx); err != nil {
		return err // a stop publishes nothing new
	}
	failed := commandFailure(end)
	if failed != nil && exitCode(failed) == ExitCancelled {
		return failed
	}
	r.progress(0.9, "publishing")
	c.readResult(r, dir)
	err = c.publishOutputs(ctx, r, dir)
	switch {
	case failed == nil:
		return err
	case err != nil && stopped(ctx) == nil:
		r.warn("could not publish all that the failed command left: %v", err)
	}
	return failed
}

func (c commandWork) workFolder(r *run) (string, error) {
	dir := c.dir
	if dir == "" {
		dir = filepath.Join(r.scratch, "work")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", transientf("naming the work folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, inputsDir), 0o700); err != nil {
		return "", transientf("making the work folder %s: %w", dir, pathless(err))
	}
	return dir, nil
}

func stageInputs(ctx context.Context, r *run, dir string) error {
	staged := []stagedInput{}
	names := newNameSet(true)
	for i, in := range r.inputs {
		if err := stopped(ctx); err != nil {
			return err
		}
		relpath, err := names.claim(inputsDir, in.port, in.name)
		if err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
		path := filepath.Join(dir, filepath.FromSlash(relpath))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return transientf("making a folder for input %s: %w", in.name, pathless(err))
		}
		got, err := r.fetchInput(ctx, i, in, path)
		if err != nil {
			return err
		}
		staged = append(staged, stagedInput{in.name, relpath, in.port, got.sha256, got.size})
		r.progress(0.1*float64(i+1)/float64(len(r.inputs)), in.name)
	}
	list, err := document(staged)
	if err != nil {
		return permanentf("composing %s: %w", inputsFile, err)
	}
	return writePrivate(filepath.Join(dir, inputsFile), list)
}

// writePrivate writes a file for the step's own user. params may hold what nobody else should read.
func writePrivate(path string, data []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return transientf("replacing %s: %w", filepath.Base(path), pathless(err))
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return transientf("writing %s: %w", filepath.Base(path), pathless(err))
	}
	return nil
}

func (c commandWork) environment(dir string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return slices.ContainsFunc(hiddenVariables, func(name string) bool { return strings.HasPrefix(kv, name) })
	})
	return append(env,
		"OPENAI4S_STEP_WORK="+dir,
		"OPENAI4S_STEP_INPUTS="+filepath.Join(dir, inputsFile),
		"OPENAI4S_STEP_PARAMS="+filepath.Join(dir, paramsFile),
		"OPENAI4S_STEP_RESULT="+filepath.Join(dir, resultName),
	)
}

// relay prints a line of the command, or takes it as progress of the part of the run that the command is.
func (r *run) relay(stderr bool, text string) {
	if fraction, phase, ok := readProgress(text); ok && !stderr {
		r.progress(0.1+commandPart*fraction, phase)
		return
	}
	w := r.out
	if stderr {
		w = r.err
	}
	r.line(w, text)
}

// commandFailure maps the command's end to the step's: 1, 10, 20 and 30 pass, everything else is permanent.
func commandFailure(end exited) error {
	var err error
	if end.signal != 0 {
		err = fmt.Errorf("the command was killed by signal %d (%s)", int(end.signal), end.signal)
	} else {
		err = fmt.Errorf("the command exited with %d", end.code)
	}
	switch end.code {
	case ExitOK:
		return nil
	case ExitTransient, ExitCancelled, ExitContention:
		return &failure{code: end.code, err: err}
	}
	return &failure{code: ExitPermanent, err: err}
}

// readResult takes over what the command left in result.json. One that can't be read is said and left out: the
// outputs are whole without it.
func (c commandWork) readResult(r *run, dir string) {
	path := filepath.Join(dir, resultName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxInvocation) {
		err = fmt.Errorf("it is no file of at most %d bytes", maxInvocation)
	}
	var doc object
	if err == nil {
		var data []byte
		if data, err = os.ReadFile(path); err == nil {
			v, valid := parse(data)
			if doc, _ = asObject(v); !valid || doc == nil {
				err = errors.New("it is not a JSON object")
			}
		}
	}
	if err != nil {
		r.warn("the command's %s is left out: %v", resultName, pathless(err))
		return
	}
	r.report.absorb(doc)
}

func (c commandWork) publishOutputs(ctx context.Context, r *run, dir string) error {
	files, err := findOutputs(ctx, dir, c.outputs, isOurs)
	if err != nil {
		return transientf("looking for outputs: %w", pathless(err))
	}
	for _, g := range c.outputs {
		if !slices.ContainsFunc(files, func(f found) bool { return g.match(strings.Split(f.relpath, "/")) }) {
			r.warn("output %s: nothing matches %s", g.port, g.glob)
		}
	}
	for i, f := range files {
		if err := stopped(ctx); err != nil {
			return err
		}
		relpath, err := r.names.claim(outputDir, f.ports[0], f.relpath)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(f.relpath))
		if info, err := os.Stat(path); err == nil && info.Size() > maxObject {
			return tooLarge(f.relpath, info.Size()) // known without reading it
		}
		m, err := measureFile(ctx, path, r.block)
		if err != nil {
			return naming(asTransient(err), "measuring %s", f.relpath)
		}
		if err := r.publish(ctx, relpath, path, m, f.ports...); err != nil {
			return err
		}
		r.progress(0.9+0.06*float64(i+1)/float64(len(files)), f.relpath)
	}
	return nil
}

// isOurs names what staging put into the work folder.
func isOurs(relpath string) bool {
	return relpath == inputsDir || relpath == inputsFile || relpath == paramsFile || relpath == resultName
}

func asTransient(err error) error {
	if errors.Is(err, ErrStopped) {
		return err
	}
	return transientf("%w", pathless(err))
}
