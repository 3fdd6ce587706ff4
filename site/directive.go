package site

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openai4s/hpc/internal/tomlfile"
)

// options of a submit command that a directive may not set.
type options struct {
	short     map[byte]string   // letter to the long name, or to what it is
	long      []string          // names; a directive's abbreviation of one is refused as well, since getopt takes it
	bare      string            // short options without a value, which may stand together: -sH
	why       map[string]string // a reason other than that we set it
	resources []string          // pbs: names in -l and -W that we set
}

const setByUs = "is set by openai4s itself"

var directiveRules = map[string]options{
	slurm: {
		short: map[byte]string{
			'J': "job-name", 'o': "output", 'e': "error", 'i': "input", 'D': "chdir", 'N': "nodes", 'n': "ntasks", 't': "time",
			'p': "partition", 'q': "qos", 'A': "account", 'G': "gpus", 'c': "cpus-per-task", 'W': "wait", 'a': "array", 'M': "clusters",
			'm': "distribution", 'O': "overcommit", 'h': "help", 'V': "version", 'Q': "quiet", 'v': "verbose",
		},
		long: []string{
			"account", "array", "chdir", "clusters", "comment", "cpus-per-gpu", "cpus-per-task", "distribution", "error", "export", "export-file",
			"get-user-env", "gid", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "help", "het-group", "hetjob", "input", "job-name",
			"mem", "mem-per-cpu", "mem-per-gpu", "no-requeue", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node",
			"ntasks-per-socket", "open-mode", "output", "overcommit", "parsable", "partition", "qos", "quiet", "requeue", "signal", "test-only",
			"time", "time-min", "tres-per-task", "uid", "usage", "verbose", "version", "wait", "wrap",
		},
		bare: "sHkIOQvVh",
		why: map[string]string{
			"array": "makes many jobs of one", "clusters": "may send the job to another cluster", "export": "hands the shell's environment to the job",
			"export-file": "hands an environment to the job", "get-user-env": "runs a login shell for the job", "wrap": "replaces the script",
			"hetjob": "makes a job of several parts", "het-group": "makes a job of several parts", "uid": "acts for another user", "gid": "acts for another group",
			"help": "doesn't submit", "usage": "doesn't submit", "version": "doesn't submit", "test-only": "doesn't submit",
			"wait": "keeps the submission from returning", "verbose": "changes the submit command's output", "quiet": "changes the submit command's output",
			"distribution": "changes which rank goes to which node", "overcommit": "changes which rank goes to which node",
			"time-min": "lets the scheduler shorten the job unseen",
		},
	},
	pbs: {
		short: map[byte]string{
			'N': "job name", 'o': "output", 'e': "error", 'j': "join", 'k': "keep", 'q': "queue", 'r': "rerun", 'A': "account", 'P': "project",
			'J': "array", 'S': "shell", 'v': "variables", 'V': "variables", 'I': "interactive", 'X': "interactive", 'G': "interactive", 'z': "quiet",
			'w': "working folder", 'f': "foreground", 'C': "directive prefix", 'R': "removing files", 'u': "user",
		},
		bare: "fhIVXzG",
		why: map[string]string{
			"array": "makes many jobs of one", "variables": "hands the shell's environment to the job", "interactive": "makes the job interactive",
			"quiet": "hides the job's id", "directive prefix": "changes how the script is read", "removing files": "removes the job's output",
			"user": "acts for another user", "foreground": "changes how the command returns",
		},
		resources: []string{
			"select", "place", "walltime", "min_walltime", "max_walltime", "soft_walltime", "nodes", "ncpus", "mem", "ngpus", "mpiprocs",
			"umask", "block", "run_count", "interactive", "pwd", "sandbox", "stagein", "stageout",
		},
	},
}

// badDirective says what is wrong with one entry of a profile's directives, "" if nothing is. An entry is one option of
// the submit command as a script would have it, "--constraint=a100" or "-l software=1".
func badDirective(system, d string) (why, hint string) {
	rules, known := directiveRules[system]
	words := strings.Fields(d)
	switch {
	case system == local:
		return "a local site's jobs have no directives", "leave it out"
	case !known:
		return "", ""
	case strings.ContainsFunc(d, isControl):
		return "holds a line end or a control character", "write one option an entry"
	case len(words) == 0 || !strings.HasPrefix(words[0], "-") || len(strings.Trim(words[0], "-")) == 0:
		return tomlfile.Show(d) + " is not an option", `write it as on the command line, like "--constraint=a100"`
	case strings.Contains(d, "#"):
		return tomlfile.Show(d) + " holds a comment sign", "comments go into site.toml itself"
	case len(words) > 2 && !strings.ContainsAny(d, `"'`):
		return tomlfile.Show(d) + " is more than one option", "write one option an entry"
	}
	for i, w := range words[1:] {
		if w == ":" || strings.HasPrefix(w, "hetjob") {
			return tomlfile.Show(d) + " makes a job of several parts", "a job has one kind of node"
		}
		if strings.HasPrefix(w, "-") || i > 0 && strings.HasPrefix(strings.TrimLeft(w, `"'`), "-") {
			return tomlfile.Show(d) + " is more than one option", "write one option an entry"
		}
	}
	if name, ok := strings.CutPrefix(words[0], "--"); ok {
		return rules.longOption(system, name)
	}
	return rules.shortOption(d, words)
}

// longOption judges "--name" or "--name=value".
func (o options) longOption(system, name string) (why, hint string) {
	name, _, _ = strings.Cut(name, "=")
	if system == pbs {
		return "--" + name + " is no option of a job", `write short options, like "-l software=1"`
	}
	for _, refused := range o.long {
		if strings.HasPrefix(refused, name) {
			return o.refuse("--"+refused, refused)
		}
	}
	return "", ""
}

// shortOption judges "-x", "-xvalue", "-x value" and letters without values that stand together.
func (o options) shortOption(d string, words []string) (why, hint string) {
	rest := words[0][1:]
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		if name, refused := o.short[c]; refused {
			return o.refuse("-"+string(c), name)
		}
		if strings.IndexByte(o.bare, c) >= 0 {
			continue
		}
		value := rest[i+1:]
		if value == "" && len(words) > 1 {
			value = words[1]
		}
		if c == 'l' || c == 'W' {
			return o.resource(c, value)
		}
		return "", ""
	}
	if len(words) > 1 {
		return tomlfile.Show(d) + " is more than one option", "write one option an entry"
	}
	return "", ""
}

// resource judges the lists of -l and -W, "name=value,name=value".
func (o options) resource(letter byte, list string) (why, hint string) {
	if o.resources == nil {
		return "", ""
	}
	for part := range strings.SplitSeq(strings.Trim(list, `"'`), ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), "=")
		if slices.Contains(o.resources, strings.ToLower(name)) {
			return fmt.Sprintf("-%c %s %s", letter, tomlfile.Clean(name), setByUs), profileHint(name)
		}
	}
	return "", ""
}

func (o options) refuse(option, name string) (why, hint string) {
	if reason, ok := o.why[name]; ok {
		return option + " " + reason, "leave it out"
	}
	return option + " " + setByUs, profileHint(name)
}

// profileHint names the key that means the same as a refused option.
func profileHint(name string) string {
	keys := map[string]string{
		"partition": "partition", "qos": "qos", "account": "account", "queue": "queue", "project": "project", "place": "place", "select": "select_extra",
		"time": "walltime", "walltime": "walltime", "nodes": "max_nodes", "ntasks": "max_ranks_per_node", "ntasks-per-node": "max_ranks_per_node",
		"mpiprocs": "max_ranks_per_node", "mem": "memory_per_node", "mem-per-cpu": "memory_per_node", "cpus-per-task": "cpus_per_rank",
		"ncpus": "cpus_per_rank", "gres": "gpus_per_node", "gpus": "gpus_per_node", "gpus-per-node": "gpus_per_node", "ngpus": "gpus_per_node",
	}
	if key, ok := keys[name]; ok {
		return "use the profile's key " + key
	}
	return "leave it out"
}
