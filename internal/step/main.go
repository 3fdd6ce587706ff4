package step

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const usage = `usage: openai4s-agent step [--work DIR] [--output PORT=GLOB]... [-- COMMAND [ARG]...]

Runs one external step from LSPO_CREDENTIALS_FILE. Without a command, each verified input is copied to its output.
With one, inputs are staged into a work folder, the command runs there, and what the globs match is published.

  --output PORT=GLOB  files below the work folder to publish on a port; ** crosses folders; may be repeated
  --work DIR          the work folder; kept afterwards (default: a fresh one, removed afterwards)

The command finds its inputs under inputs/, listed in inputs.json, the job's params in params.json, and may leave
metrics, summary and facts in result.json. Its codes 1, 10, 20 and 30 are the step's; others become 10.

Example:
  openai4s-agent step --output 'model=ckpt/*.pt' -- python3 train.py
`

// Main is the command openai4s-agent step: it runs one external step and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	_ = stdin // a step reads nothing: neither does its command
	r := newRun(os.Getenv, stdout, stderr)
	ctx, release := watchSignals(context.Background(), r.streams)
	defer release()
	do, err := parseArgs(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, usage)
		return ExitOK
	case err != nil:
		r.warn("%v", err)
		return ExitPermanent
	}
	remove, err := r.makeScratch()
	if err != nil {
		r.warn("%v", err)
		return ExitTransient
	}
	defer remove()
	return attempt(ctx, r, do)
}

func newRun(getenv func(string) string, stdout, stderr io.Writer) *run {
	r := &run{
		streams: &streams{out: stdout, err: stderr},
		getenv:  getenv,
		client:  newClient(getenv),
		block:   make([]byte, blockSize),
		made:    newInventory(),
		report:  newReport(),
	}
	r.creds = &credentials{now: time.Now, loaded: r.learn}
	r.staging = staging{client: r.client, block: r.block}
	return r
}

func parseArgs(args []string) (work, error) {
	var outputs []outputGlob
	flags := flag.NewFlagSet("step", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("work", "", "")
	flags.Func("output", "", func(s string) error {
		port, glob, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want PORT=GLOB")
		}
		o, err := newOutputGlob(port, glob)
		outputs = append(outputs, o)
		return err
	})
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w; see openai4s-agent step --help", err)
	}
	command := flags.Args()
	if len(command) == 0 {
		if len(outputs) > 0 || *dir != "" {
			return nil, errors.New("--output and --work need a command after --")
		}
		return copyWork, nil
	}
	return commandWork{argv: command, dir: *dir, outputs: outputs}.do, nil
}
