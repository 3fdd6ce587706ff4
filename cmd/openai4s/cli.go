package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/scheduler/systems"
	"github.com/openai4s/hpc/site"
)

// cli is the grammar of the command line.
type cli struct {
	Site    string           `help:"Site file. Default: $OPENAI4S_SITE, else /etc/openai4s/site.toml, else this machine alone." placeholder:"PATH"`
	JSON    bool             `name:"json" help:"Print one JSON object on standard output, for errors too."`
	Version kong.VersionFlag `help:"Print the version and leave."`

	Submit submitCommand `cmd:"" help:"Submit a job."`
	Render renderCommand `cmd:"" help:"Show the batch script and the submit command; nothing is submitted."`
	Status statusCommand `cmd:"" help:"Show one workload, or what is live and how the gateway is."`
	List   listCommand   `cmd:"" help:"List workloads."`
	Wait   waitCommand   `cmd:"" help:"Wait for a workload and end with its exit code."`
	Cancel cancelCommand `cmd:"" help:"Cancel a workload."`
	Logs   logsCommand   `cmd:"" help:"Show what a workload printed."`
	Verify verifyCommand `cmd:"" help:"Hold a published folder against its marker."`
	SiteOf siteCommands  `cmd:"" name:"site" help:"Show and check the site file."`
}

// app is what a command is handed: where its output goes, and the flags that all commands share.
type app struct {
	out        io.Writer
	err        *console
	live       bool // standard error is a terminal, a bar may move on it
	shared     bool // standard output is a terminal too: lines must be woven into the bar
	json       bool
	site       string
	version    string
	interrupts chan os.Signal // SIGINT and SIGTERM; each command says what they mean
}

// run is the whole program but for the process's end; it returns the exit code.
func run(args []string, stdout, stderr *os.File) int {
	if code, hidden := runHidden(args); hidden {
		return code
	}
	a := &app{
		out:        stdout,
		err:        &console{to: stderr},
		live:       isTerminal(stderr),
		shared:     isTerminal(stdout),
		json:       wantsJSON(args),
		version:    version(),
		interrupts: make(chan os.Signal, 2),
	}
	signal.Notify(a.interrupts, os.Interrupt, syscall.SIGTERM)
	return a.finish(a.dispatch(args, stdout, stderr))
}

func (a *app) dispatch(args []string, stdout, stderr io.Writer) error {
	var grammar cli
	parser, err := kong.New(&grammar,
		kong.Name("openai4s"),
		kong.Description("Runs jobs of many ranks on a cluster, or on this machine."),
		kong.Vars{"version": a.version},
		kong.Writers(stdout, stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		hint := "openai4s --help"
		if wrong := new(kong.ParseError); errors.As(err, &wrong) && wrong.Context != nil && wrong.Context.Command() != "" {
			hint = "openai4s " + commandWords(wrong.Context) + " --help"
		}
		return &failure{exit: exitUsage, message: err.Error(), hint: hint}
	}
	a.json, a.site = grammar.JSON, grammar.Site
	return parsed.Run(a)
}

// commandWords are the words of the command that was being parsed, without its arguments.
func commandWords(c *kong.Context) string {
	words := ""
	for _, p := range c.Path {
		if p.Command != nil {
			words = p.Command.FullPath()
		}
	}
	if rest, ok := cutPrefixWord(words, "openai4s"); ok {
		return rest
	}
	return words
}

// runHidden runs the processes behind the local scheduler. They are no part of the grammar: their arguments are
// somebody's command line and must reach them untouched.
func runHidden(args []string) (code int, hidden bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch {
	case args[0] == systems.SuperviseCommand && len(args) == 2:
		return systems.Supervise(args[1]), true
	case args[0] == systems.LaunchCommand:
		return systems.Launch(args[1:]), true
	}
	return 0, false
}

// wantsJSON looks for --json before anything was parsed, for errors of the parsing itself.
func wantsJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// version is the module's version, or the revision it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// isTerminal tells whether a bar can move on f: a terminal that knows its size and can move its cursor.
func isTerminal(f *os.File) bool {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil && size.Row > 0 && size.Col > 0 && os.Getenv("TERM") != "dumb"
}

// loadSite reads the site file that the command line, the environment or the machine names.
func (a *app) loadSite() (site.Site, error) {
	s, err := site.Load(a.site)
	if err != nil {
		return site.Site{}, badFile(err)
	}
	return s, nil
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM: for commands, and parts of
// commands, that can be dropped at any point.
func (a *app) interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-a.interrupts:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
