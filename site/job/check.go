package job

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/openai4s/hpc/internal/tomlfile"
	"github.com/openai4s/hpc/scheduler"
)

// The limits on a job's sizes.
const (
	maxName     = 128 // bytes
	maxRanks    = 1_000_000
	maxRestarts = 100
	maxSpan     = 10 * 365 * 24 * time.Hour
	maxArgs     = 10_000
	maxLabels   = 64
	maxLabel    = 256 // bytes of a value
	maxInputs   = 10_000
	minMemory   = 1 << 20 // bytes
)

var (
	labelKey   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`)
	sha256Form = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// isControl tells control characters of both tables, and the line and paragraph separators.
func isControl(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029
}

func (c *checker) name(v *string) string {
	name := or(v, "job")
	hint := "set name"
	if c.file.Has("name") {
		hint = ""
	}
	switch {
	case strings.TrimSpace(name) == "":
		c.bad("name", hint, "may not be empty")
	case len(name) > maxName:
		c.bad("name", hint, "has %d bytes, it may have %d", len(name), maxName)
	case name == "." || name == ".." || strings.Contains(name, "/"):
		c.bad("name", hint, "%s is a path, not a name", tomlfile.Show(name))
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		c.bad("name", hint, "%s holds a character that can't be printed", tomlfile.Show(name))
	}
	return name
}

func (c *checker) command(argv []string) []string {
	switch {
	case len(argv) == 0:
		c.bad("command", `write it as a list, like command = ["python3", "train.py"]`, "is required")
	case strings.TrimSpace(argv[0]) == "":
		c.bad(tomlfile.Key("command").Index(0), "the first word is the program", "may not be empty")
	case len(argv) > maxArgs:
		c.bad("command", "put the arguments into a file", "has %d words, it may have %d", len(argv), maxArgs)
	case len(argv) == 1 && strings.ContainsAny(argv[0], " \t") && !strings.HasPrefix(argv[0], "/"):
		c.bad(tomlfile.Key("command").Index(0), "write its words apart: command = "+wordList(argv[0]), "%s is several words in one", tomlfile.Show(argv[0]))
	}
	for i, arg := range argv {
		if strings.IndexByte(arg, 0) >= 0 {
			c.bad(tomlfile.Key("command").Index(i), "", "holds a NUL character")
		}
	}
	return argv
}

// setup lines run in one shell, so that a text of several lines is as good as several texts.
func (c *checker) setup(lines []string) []string {
	for i, line := range lines {
		if strings.ContainsFunc(line, func(r rune) bool { return isControl(r) && r != '\t' && r != '\n' }) {
			c.bad(tomlfile.Key("setup").Index(i), "write shell lines", "holds a control character")
		}
	}
	return lines
}

// path makes a path of the job absolute: "~/" is the user's home, and what is relative is below the job file's folder.
func (c *checker) path(key tomlfile.Key, p string) string {
	switch {
	case p == "":
		c.bad(key, "", "may not be empty")
	case strings.ContainsFunc(p, isControl):
		c.bad(key, "", "%s holds a control character", tomlfile.Show(p))
	case filepath.IsAbs(p):
		return filepath.Clean(p)
	case p == "~" || strings.HasPrefix(p, "~/"):
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			c.bad(key, "set HOME, or write an absolute path", "no home folder is known for %s", tomlfile.Show(p))
			return ""
		}
		return filepath.Join(home, p[1:])
	case strings.HasPrefix(p, "~"):
		c.bad(key, `only "~/" is expanded; write an absolute path`, "%s names another user's home", tomlfile.Show(p))
	case strings.HasPrefix(p, "$"):
		c.bad(key, "variables are not expanded; write the path itself", "%s begins with a variable", tomlfile.Show(p))
	default:
		return filepath.Join(c.dir, p)
	}
	return ""
}

func (c *checker) labels(labels map[string]string) map[string]string {
	if len(labels) > maxLabels {
		c.bad("labels", "", "has %d labels, it may have %d", len(labels), maxLabels)
	}
	for k, v := range labels {
		key := tomlfile.Key("labels").Dot(k)
		switch {
		case !labelKey.MatchString(k):
			c.bad(key, "letters, digits, dots, dashes, slashes and underscores, at most 63", "%s can't name a label", tomlfile.Show(k))
		case len(v) > maxLabel:
			c.bad(key, "", "has %d bytes, it may have %d", len(v), maxLabel)
		case strings.ContainsFunc(v, isControl):
			c.bad(key, "", "holds a control character")
		}
	}
	return labels
}

func (c *checker) secrets(raw map[string]rawSecret, env map[string]string) map[string]scheduler.SecretSource {
	if raw == nil {
		return nil
	}
	secrets := map[string]scheduler.SecretSource{}
	for name, s := range raw {
		key := tomlfile.Key("secrets").Dot(name)
		c.variable(key, name)
		if _, both := env[name]; both {
			c.bad(key, "leave one of them out", "stands in [env] as well")
		}
		if (s.Env == nil) == (s.File == nil) {
			c.bad(key, `write { env = "NAME" } or { file = "~/path" }`, "must have one of env and file")
			continue
		}
		if s.Env != nil {
			if !variable.MatchString(*s.Env) {
				c.bad(key.Dot("env"), "name the variable, not its value", "is not a variable's name") // never shown: it may be the secret
			}
			secrets[name] = scheduler.SecretSource{Env: *s.Env}
		} else {
			secrets[name] = scheduler.SecretSource{File: c.path(key.Dot("file"), *s.File)}
		}
	}
	return secrets
}

func (c *checker) inputs(raw []rawInput) []scheduler.Input {
	if len(raw) > maxInputs {
		c.bad("inputs", "name a folder's archive", "has %d entries, it may have %d", len(raw), maxInputs)
		return nil
	}
	var inputs []scheduler.Input
	names := map[string]int{}
	for i, in := range raw {
		key := tomlfile.Key("inputs").Index(i)
		if in.SHA256 != "" && !sha256Form.MatchString(in.SHA256) || in.SHA256 == "" && c.file.Has(key.Dot("sha256")) {
			c.bad(key.Dot("sha256"), "write what sha256sum prints, 64 lower-case hex digits, or leave it out", "%s is not a SHA-256", tomlfile.Show(in.SHA256))
		}
		if in.Path == "" {
			c.bad(key.Dot("path"), "name the file, relative to the job file", "is required")
			continue
		}
		name := in.Path
		if filepath.IsAbs(name) || name == "~" || strings.HasPrefix(name, "~/") {
			name = filepath.Base(name)
		}
		name = strings.TrimPrefix(name, "./")
		if why := badRelpath(name); why != "" {
			c.bad(key.Dot("path"), "name a file below the job file's folder, or an absolute path", "%s %s", tomlfile.Show(in.Path), why)
			continue
		}
		if j, twice := names[name]; twice {
			c.bad(key.Dot("path"), "name each input once", "%s is the name of inputs[%d] too", tomlfile.Show(name), j)
		}
		names[name] = i
		inputs = append(inputs, scheduler.Input{Path: c.path(key.Dot("path"), in.Path), Name: name, SHA256: in.SHA256})
	}
	return inputs
}

// badRelpath says why s is not a relative path as inventories have it.
func badRelpath(s string) string {
	switch {
	case s == "":
		return "is empty"
	case strings.HasPrefix(s, "/"):
		return "is absolute"
	case strings.Contains(s, `\`):
		return "holds a backslash"
	case strings.ContainsFunc(s, isControl):
		return "holds a control character"
	}
	parts := strings.Split(s, "/")
	switch {
	case slices.Contains(parts, ".."):
		return `holds ".."`
	case slices.Contains(parts, "."):
		return `holds "."`
	case slices.Contains(parts, ""):
		return "holds an empty part"
	}
	return ""
}

func (c *checker) outputs(raw rawOutputs) scheduler.Outputs {
	o := scheduler.Outputs{Ports: raw.Ports}
	if raw.Publish != "" {
		o.Publish = c.path("outputs.publish", raw.Publish)
	}
	for name, globs := range raw.Ports {
		key := tomlfile.Key("outputs.ports").Dot(name)
		if name == "" || strings.TrimSpace(name) != name || strings.ContainsFunc(name, isControl) {
			c.bad(key, "use a plain word", "%s is not a port's name", tomlfile.Show(name))
		}
		if len(globs) == 0 {
			c.bad(key, `list patterns below the workdir, like ["results/*.csv"]`, "names no files")
		}
		for i, g := range globs {
			if why := badRelpath(g); why != "" {
				c.bad(key.Index(i), "name files below the workdir", "%s %s", tomlfile.Show(g), why)
			} else if _, err := filepath.Match(g, ""); err != nil {
				c.bad(key.Index(i), "close every bracket, or escape it", "%s is not a pattern", tomlfile.Show(g))
			}
		}
	}
	if len(raw.Ports) > 0 && raw.Publish == "" {
		c.bad("outputs.ports", "set outputs.publish to a folder", "names outputs, but there is no folder to publish them to")
	}
	return o
}
