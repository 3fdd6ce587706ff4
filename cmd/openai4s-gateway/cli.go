package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/alecthomas/kong"

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

	Serve serveCmd `cmd:"" default:"1" help:"Serve until SIGTERM (the default)."`
	Pin   pinCmd   `cmd:"" help:"Print the pin of the daemon's key, for control_pins of the site file."`
	Store struct {
		Check   storeCheckCmd   `cmd:"" help:"Read the whole store of a stopped daemon and say what is wrong."`
		Compact storeCompactCmd `cmd:"" help:"Rewrite the store of a stopped daemon without empty pages."`
		Backup  storeBackupCmd  `cmd:"" help:"Copy the store, of a running daemon too. The copy opens no secret."`
	} `cmd:"" help:"Look after the store."`
}

const description = `The openai4s site daemon: authenticates the ranks of every workload, releases whole gangs, follows jobs to their end.

Examples:
  openai4s-gateway --site /etc/openai4s/site.toml
  openai4s-gateway store backup --to /backup/openai4s.db

It logs to standard error, one JSON document a line, and ends on SIGTERM within five seconds; ranks go on and come
back to the next daemon on the same state folder.`

// app is what the commands share.
type app struct {
	cli            *cli
	stdout, stderr io.Writer
}

// failure is an error with an exit code and a remedy.
type failure struct {
	exit int
	err  error
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func run(args []string, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("openai4s-gateway"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Vars{"version": version()}, kong.Exit(func(code int) { exited = code }))
	if err != nil {
		return show(stderr, err)
	}
	ctx, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		return show(stderr, &failure{exitUsage, err, "openai4s-gateway --help shows what there is"})
	}
	return show(stderr, ctx.Run(&app{cli: &c, stdout: stdout, stderr: stderr}))
}

// show tells an error and returns the exit code: the one place that decides it.
func show(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	f := &failure{exit: exitFailed, err: err}
	if !errors.As(err, &f) && errors.Is(err, daemon.ErrLocked) {
		f.exit, f.hint = exitFailed, "stop the daemon on this state folder first"
	}
	fmt.Fprintf(stderr, "openai4s-gateway: %v\n", err)
	if f.hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", f.hint)
	}
	return f.exit
}

// options are those of a daemon for the site that the flags name.
func (a *app) options() (daemon.Options, error) {
	s, err := site.Load(a.cli.Site)
	if err != nil {
		f := &failure{exit: exitBadFile, err: err}
		var hinted interface{ Remedy() string }
		if errors.As(err, &hinted) {
			f.hint = hinted.Remedy()
		}
		return daemon.Options{}, f
	}
	if s.IsBuiltin() && !a.cli.User {
		return daemon.Options{}, &failure{exitBadFile,
			errors.New("no site file: neither --site nor OPENAI4S_SITE names one, and /etc/openai4s/site.toml is not there"),
			"write one (docs/site.example.toml shows every key), or use --user for a daemon of your own"}
	}
	system, err := systems.For(s)
	if err != nil {
		return daemon.Options{}, err
	}
	o := daemon.Options{Site: s, System: system, StateDir: s.Gateway.StateDir, Control: s.Gateway.Control, Listen: s.Gateway.Listen, Version: version()}
	if a.cli.User || o.StateDir == "" {
		dir, err := daemon.UserState(s)
		if err != nil {
			return daemon.Options{}, err
		}
		o.StateDir, o.Control, o.Embedded = dir, daemon.ControlSocket(dir), true
	}
	if s.Gateway.ControlIsRemote() && !o.Embedded { // the socket is for whoever may read the state folder, on this host
		o.Remote, o.Control = s.Gateway.Control, daemon.ControlSocket(o.StateDir)
	}
	return o, nil
}

// version is what the build recorded.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}
