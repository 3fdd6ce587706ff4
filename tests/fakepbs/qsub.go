package fakepbs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const qsubUsage = `usage: qsub [-a date_time] [-A account_string] [-c interval]
	[-C directive_prefix] [-e path] [-f ] [-h ] [-I [-X]] [-j oe|eo] [-J X-Y[:Z]]
	[-k keep] [-l resource_list] [-m mail_options] [-M user_list]
	[-N jobname] [-o path] [-p priority] [-P project] [-q queue] [-r y|n]
	[-R o|e|oe] [-S path] [-u user_list] [-W otherattributes=value...]
	[-v variable_list] [-V ] [-z] [script | -- command [arg1 ...]]
       qsub --version
`

// Options of qsub: those with a value, and those without.
const (
	withValue    = "aAcCejJklmMNopPqrRSuWv"
	withoutValue = "fhIXVz"
)

var legalName = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)

// refused is an error of qsub with its exit code.
func refused(code int, text string) reply {
	return reply{Stderr: []byte("qsub: " + text + "\n"), Code: code}
}

// options are the command line's or a directive's options, in order: the letter and its value.
type option struct{ letter, value string }

func parseOptions(args []string) (opts []option, rest []string, bad *reply) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if len(a) < 2 || a[0] != '-' || a == "--" {
			return opts, args[i:], nil
		}
		letter := a[1:2]
		switch {
		case strings.Contains(withoutValue, letter):
			opts = append(opts, option{letter, ""})
			if len(a) > 2 {
				args[i] = "-" + a[2:]
				i--
			}
		case strings.Contains(withValue, letter):
			value := a[2:]
			if value == "" {
				if i++; i >= len(args) {
					r := reply{Stderr: []byte("qsub: option requires an argument -- '" + letter + "'\n" + qsubUsage), Code: 2}
					return nil, nil, &r
				}
				value = args[i]
			}
			opts = append(opts, option{letter, value})
		default:
			r := reply{Stderr: []byte("qsub: invalid option -- '" + letter + "'\n" + qsubUsage), Code: 2}
			return nil, nil, &r
		}
	}
	return opts, nil, nil
}

// qsub takes a job, or says why not.
func (s *server) qsub(req request) reply {
	opts, rest, bad := parseOptions(slices.Clone(req.Args))
	if bad != nil {
		return *bad
	}
	j := &job{owner: req.User, queue: "workq", project: "_pbs_project_default", join: "n", keep: "n", rerun: true, cwd: req.Cwd,
		env: req.Env, hold: "n", script: req.Stdin, name: "STDIN", state: "Q", substate: 10, said: strings.Join(req.Args, " ")}
	if len(rest) > 0 && rest[0] != "-" {
		script, err := readScript(req.Cwd, rest[0])
		if err != nil {
			return refused(1, "script file:: No such file or directory")
		}
		j.script, j.name = script, filepath.Base(rest[0])
	}
	if bytes.Contains(j.script, []byte("\r\n")) {
		return refused(2, "script contains cr, lf")
	}
	given := ""
	for _, o := range opts {
		given += o.letter
	}
	for _, o := range directives(j.script) { // the command line wins
		if strings.Contains("lvW", o.letter) || !strings.Contains(given, o.letter) {
			opts = append(opts, o)
		}
	}
	if r := j.apply(opts); r != nil {
		return *r
	}
	if r := s.admit(j); r != nil {
		return *r
	}
	s.lastNum++
	j.num, j.created, j.modified = s.lastNum, time.Now(), time.Now()
	if j.hold == "n" {
		j.eligible = j.created
	} else {
		j.state, j.substate = "H", 20
	}
	j.cookie = fmt.Sprintf("%032X", time.Now().UnixNano())
	s.jobs = append(s.jobs, j)
	return reply{Stdout: []byte(j.id() + "\n"), Wait: s.config.SubmitDelay, Hang: s.config.LoseAnswer}
}

// directives are the options in the script's #PBS lines, which end at the first command.
func directives(script []byte) []option {
	var out []option
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSpace(line)
		text, ok := strings.CutPrefix(line, "#PBS ")
		if ok {
			opts, _, _ := parseOptions(strings.Fields(text))
			out = append(out, opts...)
		} else if line != "" && line[0] != '#' {
			break
		}
	}
	return out
}

func (j *job) apply(opts []option) *reply {
	fail := func(code int, format string, args ...any) *reply {
		r := refused(code, fmt.Sprintf(format, args...))
		return &r
	}
	usage := func(text string) *reply {
		return &reply{Stderr: []byte("qsub: " + text + "\n" + qsubUsage), Code: 2}
	}
	lone := map[string]string{} // resources outside of select
	for _, o := range opts {
		switch o.letter {
		case "N":
			if !legalName.MatchString(o.value) {
				return usage("illegal -N value")
			}
			if len(o.value) > 230 {
				return fail(2, "Job name is too long ")
			}
			j.name = o.value
		case "A":
			j.account = o.value
		case "P":
			if strings.ContainsAny(o.value, "/ ") {
				return fail(166, "Illegal attribute or resource value project")
			}
			j.project = o.value
		case "q":
			j.queue = o.value
		case "o":
			if o.value == "" {
				return usage("illegal -o value")
			}
			if host, path, ok := strings.Cut(o.value, ":"); ok && host != "" {
				o.value = path
			}
			j.out = o.value
		case "j":
			j.join = o.value
		case "k":
			j.keep = o.value
		case "r":
			j.rerun = o.value == "y"
		case "S":
			j.shell = o.value
		case "h":
			j.hold = "u"
		case "v":
			for _, kv := range splitVariables(o.value) {
				if strings.ContainsAny(kv, `"'`) {
					return fail(1, "cannot send environment with the job")
				}
				name, value, given := strings.Cut(kv, "=")
				if !given {
					value = j.env[name]
				}
				j.vars = append(j.vars, name+"="+strings.TrimRight(value, " "))
			}
		case "V":
			for k, v := range j.env {
				j.vars = append(j.vars, k+"="+v)
			}
			slices.Sort(j.vars)
		case "W":
			name, value, _ := strings.Cut(o.value, "=")
			switch name {
			case "umask":
				j.umask = value
			case "group_list":
				j.group = value
			case "block", "sandbox":
			default:
				return fail(154, "Error (15002) submitting job")
			}
		case "l":
			if r := j.resources(o.value, lone, fail); r != nil {
				return r
			}
		}
	}
	if j.sel != "" {
		for name := range lone {
			if name == "nodes" {
				return fail(6, "Cannot be used with select or place: nodes")
			}
			return fail(5, `"-lresource=" cannot be used with "select" or "place", resource is: %s`, name)
		}
	}
	return j.defaults(lone)
}

// resources reads one -l: the first select wins, as does the first of any resource in front of a later one.
func (j *job) resources(list string, lone map[string]string, fail func(int, string, ...any) *reply) *reply {
	for part := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "select":
			if j.sel != "" {
				continue // the first wins
			}
			chunks, err := parseSelect(value)
			if err != nil {
				return err
			}
			j.sel, j.chunks = value, chunks
		case "place":
			if j.place == "" {
				j.place = value
			}
		case "walltime":
			d, ok := walltime(value)
			if !ok {
				return fail(166, "Illegal attribute or resource value Resource_List.walltime")
			}
			if j.wall == 0 {
				j.wall = d
			}
		case "ncpus", "mem", "nodes":
			lone[name] = value
		default:
			return fail(187, "Unknown resource Resource_List.%s", name)
		}
	}
	return nil
}

func (j *job) defaults(lone map[string]string) *reply {
	if j.sel == "" {
		j.sel = "1:ncpus=1"
		if n := lone["ncpus"]; n != "" {
			j.sel = "1:ncpus=" + n
		}
		if m := lone["mem"]; m != "" {
			j.sel += ":mem=" + m
		}
		chunks, r := parseSelect(j.sel)
		if r != nil {
			return r
		}
		j.chunks = chunks
		if j.place == "" {
			j.place = "pack"
		}
	}
	if j.place == "" {
		j.place = "free"
	}
	return nil
}

func walltime(text string) (time.Duration, bool) {
	total := 0
	for part := range strings.SplitSeq(text, ":") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return 0, false
		}
		total = total*60 + n
	}
	return time.Duration(total) * time.Second, true
}

var memory = regexp.MustCompile(`^([0-9]+)(kb|mb|gb)$`)

func parseSelect(text string) ([]chunk, *reply) {
	var out []chunk
	for part := range strings.SplitSeq(text, "+") {
		c := chunk{count: 1, ncpus: 1}
		for i, r := range strings.Split(part, ":") {
			name, value, given := strings.Cut(r, "=")
			if !given {
				n, err := strconv.Atoi(r)
				if i > 0 || err != nil || n < 1 {
					r := refused(166, "Illegal attribute or resource value")
					return nil, &r
				}
				c.count = n
				continue
			}
			n, err := strconv.Atoi(value)
			switch name {
			case "ncpus":
				c.ncpus = n
			case "mpiprocs":
				c.mpiprocs = n
			case "ngpus":
				c.gpus = n
			case "ompthreads":
			case "mem":
				m := memory.FindStringSubmatch(value)
				if m == nil {
					r := refused(166, "Illegal attribute or resource value select.mem")
					return nil, &r
				}
				kb, _ := strconv.ParseInt(m[1], 10, 64)
				c.memText, err = value, nil
				c.memKB = kb * map[string]int64{"kb": 1, "mb": 1 << 10, "gb": 1 << 20}[m[2]]
			case "host":
				c.host, err = value, nil
			case "arch":
				c.arch, err = value, nil
			default:
				r := refused(187, "Unknown resource: "+name)
				return nil, &r
			}
			if err != nil {
				r := refused(166, "Illegal attribute or resource value select."+name)
				return nil, &r
			}
			c.resources = append(c.resources, r)
		}
		out = append(out, c)
	}
	return out, nil
}

// admit is the server's judgement.
func (s *server) admit(j *job) *reply {
	fail := func(code int, text string) *reply {
		r := refused(code, text)
		return &r
	}
	q, known := queueNamed(j.queue)
	switch {
	case s.config.HookReject != "":
		return fail(32, s.config.HookReject)
	case !known:
		return fail(170, "Unknown queue")
	case q.forbidden:
		return fail(159, "Unauthorized Request ")
	case q.disabled:
		return fail(173, "Queue is not enabled")
	case q.maxWall > 0 && j.wall > q.maxWall:
		return fail(188, "Job violates queue and/or server resource limits")
	}
	if j.wall == 0 {
		j.wall = q.defWall
	}
	queued := 0
	for _, other := range s.jobs {
		if other.live() && other.owner == j.owner && other.queue == j.queue {
			queued++
		}
	}
	if q.maxQueued > 0 && queued >= q.maxQueued {
		return fail(38, "would exceed queue generic's per-user limit")
	}
	return nil
}

func readScript(cwd, path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	return os.ReadFile(path)
}
