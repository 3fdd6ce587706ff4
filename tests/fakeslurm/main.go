package fakeslurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Main does what the command that argv names does, and returns its exit code.
func Main(argv []string) int {
	name := filepath.Base(argv[0])
	run, ok := map[string]func(*command) int{
		"sbatch":   (*command).sbatch,
		"squeue":   (*command).squeue,
		"sacct":    (*command).sacct,
		"scancel":  (*command).scancel,
		"scontrol": (*command).scontrol,
		"sacctmgr": (*command).sacctmgr,
		supervisor: (*command).supervise,
	}[name]
	if !ok {
		return say(64, "fakeslurm: no command is called %s", name)
	}
	self, err := filepath.Abs(argv[0])
	if err != nil {
		return say(70, "fakeslurm: %v", err)
	}
	c := &command{name: name, dir: filepath.Dir(filepath.Dir(self)), options: map[string]string{}}
	if name == supervisor {
		c.args = argv[1:]
		return run(c)
	}
	var fault Fault
	c.with(func(s *cluster) {
		s.Runs = append(s.Runs, append([]string{name}, argv[1:]...))
		fault, _ = s.take(name)
	})
	return fault.around(func() int {
		if code := c.parse(argv[1:]); code != 0 {
			return code
		}
		return run(c)
	})
}

// command is one run of one command.
type command struct {
	name    string
	dir     string
	options map[string]string // long names
	args    []string
}

// short options that stand for long ones.
var short = map[string]string{
	"N": "nodes", "n": "ntasks", "J": "job-name", "p": "partition", "t": "time", "A": "account", "q": "qos", "o": "output", "D": "chdir",
}

// wordless options have no value.
var wordless = map[string]bool{
	"parsable": true, "noheader": true, "hold": true, "requeue": true, "no-requeue": true, "exclusive": true, "allocations": true,
	"helpformat": true, "oneliner": true, "parsable2": true, "immediate": true, "quiet": true,
}

// known options of each command; another is refused as the real ones do.
var known = map[string]string{
	"sbatch": " parsable job-name nodes ntasks ntasks-per-node cpus-per-task mem gres gpus-per-node partition account qos time chdir output error" +
		" open-mode export comment hold requeue no-requeue exclusive signal constraint input kill-on-invalid-dep ",
	"squeue":   " noheader states Format jobs name user clusters ",
	"sacct":    " noheader parsable allocations delimiter format jobs name user starttime helpformat clusters ",
	"scancel":  " clusters ",
	"scontrol": " oneliner ",
	"sacctmgr": " noheader parsable2 immediate quiet ",
}

// parse reads GNU options, values with "=" or as the next word.
func (c *command) parse(args []string) int {
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		var name, value string
		hasValue := false
		switch {
		case strings.HasPrefix(a, "--"):
			name, value, hasValue = strings.Cut(a[2:], "=")
		case len(a) > 1 && a[0] == '-' && short[a[1:2]] != "":
			name, value = short[a[1:2]], a[2:]
			hasValue = value != ""
		default:
			c.args = append(c.args, a)
			continue
		}
		if !strings.Contains(known[c.name], " "+name+" ") {
			fmt.Fprintf(os.Stderr, "%s: unrecognized option '%s'\nTry \"%s --help\" for more information\n", c.name, a, c.name)
			if c.name == "sbatch" {
				return 255
			}
			return 1
		}
		if !hasValue && !wordless[name] && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		c.options[name] = value
	}
	return 0
}

func (c *command) with(change func(*cluster)) {
	if err := withCluster(c.dir, change); err != nil {
		fmt.Fprintln(os.Stderr, "fakeslurm:", err)
		os.Exit(70)
	}
}

// say writes one line to standard error and returns the code.
func say(code int, format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return code
}
