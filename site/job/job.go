// Package job reads job.toml, what a user asks for, before any site is asked: names, kinds and forms are checked here,
// limits by site.Resolve.
package job

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/openai4s/hpc/internal/tomlfile"
	"github.com/openai4s/hpc/scheduler"
)

// Error is what is wrong with one key of a job file: file, line, key, message and hint. Every error of Load and New is one.
type Error = tomlfile.Error

// The defaults of job.toml. What isn't here is left to the site: nodes, ranks_per_node, walltime, resources.
const (
	DefaultOutput         = "openai4s-%w.out"
	DefaultGangTimeout    = 10 * time.Minute
	DefaultBeforeWalltime = 60 * time.Second
	DefaultGrace          = 30 * time.Second
)

// rawJob is job.toml as it is written: a pointer is nil where the file doesn't say the key.
type rawJob struct {
	Name          *string              `toml:"name"`
	Profile       string               `toml:"profile"`
	Nodes         *int                 `toml:"nodes"`
	RanksPerNode  *int                 `toml:"ranks_per_node"`
	Walltime      *tomlfile.Duration   `toml:"walltime"`
	Command       []string             `toml:"command"`
	Setup         []string             `toml:"setup"`
	Workdir       *string              `toml:"workdir"`
	Restarts      int                  `toml:"restarts"`
	Kind          *string              `toml:"kind"`
	TTY           bool                 `toml:"tty"`
	UpstreamFiles bool                 `toml:"upstream_files"`
	Output        *string              `toml:"output"`
	Labels        map[string]string    `toml:"labels"`
	Resources     rawResources         `toml:"resources"`
	Env           map[string]string    `toml:"env"`
	Secrets       map[string]rawSecret `toml:"secrets"`
	Gang          rawGang              `toml:"gang"`
	Signal        rawSignal            `toml:"signal"`
	Inputs        []rawInput           `toml:"inputs"`
	Outputs       rawOutputs           `toml:"outputs"`
}

type rawResources struct {
	CPUsPerRank   *int           `toml:"cpus_per_rank"`
	MemoryPerNode *tomlfile.Size `toml:"memory_per_node"`
	GPUsPerNode   *int           `toml:"gpus_per_node"`
}

type rawSecret struct {
	Env  *string `toml:"env"`
	File *string `toml:"file"`
}

type rawGang struct {
	Timeout *tomlfile.Duration `toml:"timeout"`
}

type rawSignal struct {
	BeforeWalltime *tomlfile.Duration `toml:"before_walltime"`
	Grace          *tomlfile.Duration `toml:"grace"`
}

type rawInput struct {
	Path   string `toml:"path"`
	SHA256 string `toml:"sha256"`
}

type rawOutputs struct {
	Publish string              `toml:"publish"`
	Ports   map[string][]string `toml:"ports"`
}

// Load reads and validates a job file. allowEnv names the injecting variables that the site lets [env] set. Paths
// in the job are absolute: relative ones are below the file's folder. Errors are *Error.
func Load(path string, allowEnv []string) (scheduler.Job, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return scheduler.Job{}, &Error{File: path, Msg: "making its path absolute: " + err.Error(), Err: err}
	}
	f, err := tomlfile.Read(abs)
	if err != nil {
		return scheduler.Job{}, err
	}
	return fromFile(f, allowEnv)
}

// New is the job that a command line makes without a file, with the defaults of one: its folder is the working
// directory, its name that of the program.
func New(command []string) (scheduler.Job, error) {
	dir, err := os.Getwd()
	if err != nil {
		return scheduler.Job{}, &Error{Key: "workdir", Msg: "finding the working directory: " + err.Error(), Err: err}
	}
	c := &checker{file: &tomlfile.File{}, dir: dir}
	raw := rawJob{Command: command}
	if len(command) > 0 {
		name := printable(filepath.Base(command[0]))
		raw.Name = &name
	}
	j := c.job(raw)
	return j, c.problems.First()
}

// printable makes a job's name of any program's.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == '/' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	for len(s) > maxName {
		s = s[:len(s)-1]
	}
	if s = strings.TrimSpace(strings.ToValidUTF8(s, "")); s == "" || s == "." || s == ".." {
		return "job"
	}
	return s
}

func fromFile(f *tomlfile.File, allowEnv []string) (scheduler.Job, error) {
	var raw rawJob
	if err := f.Decode(&raw); err != nil {
		return scheduler.Job{}, splitCommand(f, err)
	}
	c := &checker{file: f, dir: filepath.Dir(f.Path), allowEnv: allowEnv}
	if raw.Name == nil {
		stem := strings.TrimSuffix(filepath.Base(f.Path), filepath.Ext(f.Path))
		raw.Name = &stem
	}
	j := c.job(raw)
	j.File = f.Path
	if err := c.problems.First(); err != nil {
		return scheduler.Job{}, err
	}
	return j, nil
}

// splitCommand betters the hint of an error about a command that is written as one text.
func splitCommand(f *tomlfile.File, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Key == "command" {
		if text, ok := f.Text("command"); ok {
			e.Hint = "write its words apart: command = " + wordList(text)
		}
	}
	return err
}

// wordList writes a text's words as a TOML list; quotes in it are for the user to sort out.
func wordList(s string) string {
	words := strings.Fields(s)
	for i := range words {
		words[i] = tomlfile.Show(words[i])
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// checker turns a file into a Job and collects what is wrong with it.
type checker struct {
	file     *tomlfile.File
	dir      string // that relative paths are below
	allowEnv []string
	problems tomlfile.Problems
}

func (c *checker) bad(key tomlfile.Key, hint, format string, args ...any) {
	c.problems.Add(c.file.Errorf(key, hint, format, args...))
}

func (c *checker) job(raw rawJob) scheduler.Job {
	j := scheduler.Job{
		Name:          c.name(raw.Name),
		Profile:       raw.Profile,
		Nodes:         c.count("nodes", raw.Nodes, 1, maxRanks),
		RanksPerNode:  c.count("ranks_per_node", raw.RanksPerNode, 1, maxRanks),
		Walltime:      c.span("walltime", raw.Walltime, 0, time.Second),
		Command:       c.command(raw.Command),
		Setup:         c.setup(raw.Setup),
		Workdir:       c.path("workdir", or(raw.Workdir, ".")),
		Restarts:      c.count("restarts", &raw.Restarts, 0, maxRestarts),
		Kind:          scheduler.Kind(or(raw.Kind, string(scheduler.Batch))),
		TTY:           raw.TTY,
		UpstreamFiles: raw.UpstreamFiles,
		Output:        or(raw.Output, DefaultOutput),
		Labels:        c.labels(raw.Labels),
		Resources:     c.resources(raw.Resources),
		Env:           c.env(raw.Env),
		Secrets:       c.secrets(raw.Secrets, raw.Env),
		GangTimeout:   c.span("gang.timeout", raw.Gang.Timeout, DefaultGangTimeout, time.Second),
		Signal: scheduler.Signal{
			BeforeWalltime: c.span("signal.before_walltime", raw.Signal.BeforeWalltime, DefaultBeforeWalltime, 0),
			Grace:          c.span("signal.grace", raw.Signal.Grace, DefaultGrace, 0),
		},
		Inputs:  c.inputs(raw.Inputs),
		Outputs: c.outputs(raw.Outputs),
	}
	if j.Nodes > 0 && j.RanksPerNode > maxRanks/j.Nodes {
		c.bad("ranks_per_node", "", "%d nodes of %d ranks are more than %d ranks", j.Nodes, j.RanksPerNode, maxRanks)
	}
	switch {
	case j.Kind != scheduler.Batch && j.Kind != scheduler.Session:
		c.bad("kind", `write "batch" or "session"`, "%s is no kind of job", tomlfile.Show(string(j.Kind)))
	case j.TTY && j.Kind != scheduler.Session:
		c.bad("tty", `write kind = "session" as well, or leave tty out`, "only a session has a terminal")
	}
	if j.Output == "" {
		c.bad("output", "leave it out for "+DefaultOutput, "may not be empty")
	}
	return j
}

func or[T any](v *T, def T) T {
	if v == nil {
		return def
	}
	return *v
}

// ParseDuration reads a time span as job files have it, "90s" or "1d12h"; the error is an *Error with message and hint.
func ParseDuration(s string) (time.Duration, error) { return tomlfile.ParseDuration(s) }

// FormatDuration is the shortest form that ParseDuration reads back.
func FormatDuration(d time.Duration) string { return tomlfile.FormatDuration(d) }

// ParseSize reads a size as job files have it, "64GiB", into bytes; the error is an *Error with message and hint.
func ParseSize(s string) (int64, error) { return tomlfile.ParseSize(s) }

// FormatSize is the shortest form that ParseSize reads back.
func FormatSize(n int64) string { return tomlfile.FormatSize(n) }

// count takes a number from least to most, 0 where the file says none.
func (c *checker) count(key tomlfile.Key, v *int, least, most int) int {
	if v == nil {
		return 0
	}
	if *v < least || *v > most {
		c.bad(key, "", "%d is out of range, it must be from %d to %d", *v, least, most)
		return 0
	}
	return *v
}

// span takes a duration of at least least, or the default where the file says none.
func (c *checker) span(key tomlfile.Key, v *tomlfile.Duration, def, least time.Duration) time.Duration {
	if v == nil {
		return def
	}
	d := time.Duration(*v)
	if d < least {
		c.bad(key, "", "%s is too short, it must be at least %s", *v, tomlfile.FormatDuration(least))
	}
	if d > maxSpan {
		c.bad(key, "", "%s is too long, it must be at most %s", *v, tomlfile.FormatDuration(maxSpan))
	}
	return d
}

func (c *checker) resources(raw rawResources) scheduler.Resources {
	r := scheduler.Resources{CPUsPerRank: c.count("resources.cpus_per_rank", raw.CPUsPerRank, 1, 100_000)}
	const memory = "resources.memory_per_node"
	// "" is what a profile says where nothing may be asked for; in a job it means the profile's as well.
	if m := raw.MemoryPerNode; m != nil && !c.file.Says(memory, "") {
		if *m < minMemory {
			c.bad(memory, "leave it out for the profile's", "is too little, it must be at least %s", tomlfile.FormatSize(minMemory))
		}
		r.MemoryPerNode = int64(*m)
	}
	if raw.GPUsPerNode != nil {
		n := c.count("resources.gpus_per_node", raw.GPUsPerNode, 0, 1024)
		r.GPUsPerNode = &n
	}
	return r
}
