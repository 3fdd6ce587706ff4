package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"github.com/openai4s/hpc/internal/daemon"
	"github.com/openai4s/hpc/scheduler/systems"
	"github.com/openai4s/hpc/site"
)

// Exit codes, the CLI's own.
const (
	exitFailed  = 1
	exitUsage   = 80
	exitBadFile = 81
)

type cli struct {
	Site    string           `help:"The site file (default: OPENAI4S_SITE, else /etc/openai4s/site.toml)." type:"path" placeholder:"FILE"`
	User    bool             `help:"Serve one user: state and control socket below the home folder instead of the site's paths."`
	Version kong.VersionFlag `help:"Print the version and leave."`
}

const description = `The openai4s site daemon: authenticates the ranks of every workload, releases whole gangs, follows jobs to their end.

Example:
  openai4s-gateway --site /etc/openai4s/site.toml

It logs to standard error, one JSON document a line, and ends on SIGTERM within five seconds; ranks go on and come
back to the next daemon on the same state folder.`

func run(args []string, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("openai4s-gateway"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Vars{"version": version()}, kong.Exit(func(code int) { exited = code }))
	if err != nil {
		return fail(stderr, exitFailed, err, "")
	}
	if _, err := parser.Parse(args); exited >= 0 {
		return exited
	} else if err != nil {
		return fail(stderr, exitUsage, err, "openai4s-gateway --help")
	}
	s, err := site.Load(c.Site)
	if err != nil {
		var hinted interface{ Remedy() string }
		if errors.As(err, &hinted) {
			return fail(stderr, exitBadFile, err, hinted.Remedy())
		}
		return fail(stderr, exitBadFile, err, "")
	}
	if s.IsBuiltin() && !c.User {
		return fail(stderr, exitBadFile, errors.New("no site file: neither --site nor OPENAI4S_SITE names one, and /etc/openai4s/site.toml is not there"),
			"write one (docs/site.example.toml shows every key), or use --user for a daemon of your own")
	}
	o, err := options(s, c.User)
	if err != nil {
		return fail(stderr, exitFailed, err, "")
	}
	o.Log = zerolog.New(stderr).With().Timestamp().Logger()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := daemon.Run(ctx, o, func(daemon.Running) {}); err != nil {
		return fail(stderr, exitFailed, err, "")
	}
	o.Log.Info().Msg("ended")
	return 0
}

func options(s site.Site, user bool) (daemon.Options, error) {
	system, err := systems.For(s)
	if err != nil {
		return daemon.Options{}, err
	}
	o := daemon.Options{Site: s, System: system, StateDir: s.Gateway.StateDir, Control: s.Gateway.Control, Listen: s.Gateway.Listen, Version: version()}
	if user {
		dir, err := daemon.UserState(s)
		if err != nil {
			return daemon.Options{}, err
		}
		o.StateDir, o.Control, o.Embedded = dir, filepath.Join(dir, "control.sock"), true
	}
	return o, nil
}

func fail(stderr io.Writer, code int, err error, hint string) int {
	fmt.Fprintf(stderr, "openai4s-gateway: %v\n", err)
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
	return code
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}
