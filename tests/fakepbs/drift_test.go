package fakepbs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/fakepbs"
	"github.com/openai4s/hpc/tests/fakepbs/lab"
)

const (
	records = "../../scheduler/pbs/testdata/records/"
	answers = "../../scheduler/pbs/testdata/answers/"
)

// ok.sh of the records: directives of its own, an exit code by a variable.
const okScript = "#!/bin/sh\n#PBS -N okjob\n#PBS -l select=1:ncpus=1:mem=64mb\n#PBS -l walltime=00:02:00\n#PBS -j oe\nexit ${RC:-0}\n"

const sleepScript = "#!/bin/sh\n#PBS -j oe\nsleep 100\n"

// scenario makes a job of the fake come to the state of a record.
type scenario struct {
	script  string
	args    string // of qsub; "" those of the record
	config  func(*fakepbs.Config)
	conduct func(*rig, string)
	before  string // of qsub, for a job that is there already
	state   string // that is waited for
	// differs are attributes that only the record or only the fake has, for reasons that are not the fake's form.
	differs []string
}

type rig struct {
	*lab.Lab
	t      *testing.T
	dir    string
	config fakepbs.Config
}

func (r *rig) text(id string) string {
	out, _, code := r.Run(r.t, r.dir, "", "qstat", "-x", "-f", id)
	require.Zero(r.t, code)
	return out
}

func (r *rig) await(id, state string) string {
	var text string
	require.Eventually(r.t, func() bool {
		text = r.text(id)
		return strings.Contains(text, "\n    job_state = "+state+"\n")
	}, 20*time.Second, 10*time.Millisecond, "%s never was %s", id, state)
	return text
}

func (r *rig) qdel(args ...string) {
	_, errs, code := r.Run(r.t, r.dir, "", "qdel", args...)
	require.Zero(r.t, code, errs)
}

func running(r *rig, id string) {
	r.await(id, "R")
	require.Eventually(r.t, func() bool { return strings.Contains(r.text(id), "substate = 42") }, 10*time.Second, 10*time.Millisecond)
}

// commented waits until the scheduler has said why a job waits.
func commented(r *rig, id string) { commentedBy(r, id, "") }

func commentedBy(r *rig, id, words string) {
	require.Eventually(r.t, func() bool { return strings.Contains(r.text(id), "\n    comment = "+words) }, 10*time.Second, 10*time.Millisecond)
}

// used are attributes that a job has after the first look at what it used, a minute apart; elsewhere are those that
// name another host, the first being taken when the record was made.
var (
	used = []string{"resources_used.cpupercent", "resources_used.cput", "resources_used.mem", "resources_used.ncpus",
		"resources_used.vmem", "resources_used.walltime"}
	elsewhere = []string{"exec_host", "exec_vnode", "comment"}
)

// momless is a job that qdel can't end, since its first host is gone.
var momless = scenario{script: sleepScript, state: "R", config: func(c *fakepbs.Config) { c.NodeFailRequeue = time.Hour },
	conduct: func(r *rig, id string) {
		running(r, id)
		r.LoseHost(r.t, "n4")
		_, _, code := r.Run(r.t, r.dir, "", "qdel", id)
		assert.Equal(r.t, 222, code)
	}, differs: used}

var scenarios = map[string]scenario{
	"F-exit0":           {script: okScript, state: "F"},
	"F-exit3":           {script: okScript, state: "F"},
	"F-exit143":         {script: okScript, state: "F"},
	"F-exit255":         {script: okScript, state: "F", differs: elsewhere},
	"F-badoutput":       {script: okScript, state: "F"},
	"badinterp":         {script: okScript, state: "F", differs: elsewhere},
	"F-sigkill":         {script: "#!/bin/sh\n#PBS -j oe\n(kill -$S $$)\nsleep 1\n", args: "-N sigkill -v S=KILL jobs/s.sh", state: "F"},
	"H-userhold":        {script: okScript, state: "H"},
	"F-deleted-held":    {script: okScript, state: "F", conduct: func(r *rig, id string) { r.await(id, "H"); r.qdel(id) }},
	"Q-never-run-nodes": {script: okScript, state: "Q"},
	"Q-queue-stopped":   {script: okScript, state: "Q", conduct: commented},
	"Q-never-ncpus":     {script: okScript, state: "Q", conduct: commented},
	"Q-never-pack":      {script: okScript, state: "Q", conduct: commented},
	"Q-never-host":      {script: okScript, state: "Q", conduct: commented},
	"Q-never-gpu":       {script: okScript, state: "Q", conduct: commented},
	"Q-never-arch":      {script: okScript, state: "Q", conduct: commented},
	"Q-never-excl":      {script: okScript, state: "Q", conduct: commented},
	"Q-never-run-mem":   {script: okScript, state: "Q", conduct: commented},
	"Q-never-total":     {script: okScript, state: "Q", conduct: commented},
	"Q-resources-busy":  {script: sleepScript, state: "Q", before: "-l select=1:ncpus=4", conduct: commented},
	"F-deleted-queued": {script: sleepScript, state: "F", before: "-l select=1:ncpus=4",
		conduct: func(r *rig, id string) { commented(r, id); r.qdel(id) }},
	"F-sigsegv":         {script: "#!/bin/sh\n#PBS -j oe\nkill -$S $$\n", state: "F", differs: elsewhere},
	"F-ranks":           {script: "#!/bin/sh\n#PBS -N ranks\n#PBS -j oe\n#PBS -k oed\nexit 5\n", state: "F"},
	"F-walltime-4nodes": {script: sleepScript, state: "F"},
	"gpu-ok":            {script: sleepScript, state: "R", conduct: running, differs: append(elsewhere, used...)},
	"R-nodedown-3s": {script: sleepScript, state: "R", config: func(c *fakepbs.Config) { c.NodeFailRequeue = time.Hour },
		conduct: func(r *rig, id string) { running(r, id); r.LoseHost(r.t, "n4") }, differs: used},
	"qdel-while-ms-down":     momless,
	"qdel-while-ms-down-25s": momless,
	"nodedown-after-qdel": {script: sleepScript, state: "F",
		conduct: func(r *rig, id string) {
			running(r, id)
			r.LoseHost(r.t, "n4")
			commentedBy(r, id, "Not Running")
			r.qdel(id)
		}},
	"Q-scheduling-off": {script: okScript, state: "Q", config: func(c *fakepbs.Config) { c.SchedulingOff = true }},
	"R-running":        {script: sleepScript, args: "-N running -l select=4:ncpus=1:mem=64mb -l place=scatter -l walltime=00:10:00 jobs/s.sh", state: "R", differs: []string{"depend", "jobdir", "substate"}},
	"F-deleted-running": {script: sleepScript, args: "-N running -l select=4:ncpus=1:mem=64mb -l place=scatter -l walltime=00:10:00 jobs/s.sh", state: "F",
		conduct: func(r *rig, id string) { running(r, id); r.qdel(id) }, differs: []string{"depend"}},
	"F-qdel-trapped": {script: "#!/bin/sh\ntrap 'exit 5' TERM\nwhile :; do sleep 0.05; done\n", args: "-N exitexec -j oe jobs/s.sh", state: "F",
		conduct: func(r *rig, id string) { running(r, id); r.qdel(id) }},
	"F-walltime":            {script: sleepScript, args: "-N wall -l walltime=00:00:01 jobs/s.sh", state: "F"},
	"F-missing-outdir-koed": {script: "#!/bin/sh\n", args: "-N missdir -koed -o nodir/a.out -j oe jobs/s.sh", state: "H"},
	"nodedown-rerunnable": {script: sleepScript, state: "Q",
		conduct: func(r *rig, id string) {
			running(r, id)
			r.LoseHost(r.t, "n4")
			require.Eventually(r.t, func() bool { return strings.Contains(r.text(id), "comment = Not Running") }, 10*time.Second, 10*time.Millisecond)
		}},
	"nodedown-nonrerunnable": {script: sleepScript, state: "F", conduct: func(r *rig, id string) { running(r, id); r.LoseHost(r.t, "n4") }},
	"nodedown-sister": {script: sleepScript, args: "-N nd_sister -r n -l select=1:ncpus=1:host=n3+1:ncpus=1:host=n4 jobs/s.sh", state: "R",
		conduct: func(r *rig, id string) { running(r, id); r.LoseHost(r.t, "n4") }, differs: used},
	"nodedown-sister-after-qdel": {script: sleepScript, args: "-N nd_sister -r n -l select=1:ncpus=1:host=n3+1:ncpus=1:host=n4 jobs/s.sh", state: "F",
		conduct: func(r *rig, id string) { running(r, id); r.LoseHost(r.t, "n4"); r.qdel(id) }},
	"qdel-force-ms-down": {script: sleepScript, state: "F", config: func(c *fakepbs.Config) { c.NodeFailRequeue = time.Hour },
		conduct: func(r *rig, id string) {
			running(r, id)
			r.LoseHost(r.t, "n4")
			_, errs, code := r.Run(r.t, r.dir, "", "qdel", id)
			record, err := os.ReadFile(answers + "qdel-while-ms-down.err")
			require.NoError(r.t, err)
			assert.Equal(r.t, 222, code)
			assert.Equal(r.t, plain(string(record)), plain(errs))
			r.qdel("-W", "force", id)
		}},
}

// plain replaces what can't be the same in two runs: ids, times, users, folders, sizes.
func plain(s string) string {
	for _, sub := range [][2]string{
		{`[0-9]+\.pbshead`, "ID.pbshead"},
		{`[A-Z][a-z][a-z] [A-Z][a-z][a-z] +[0-9]+( at)? [0-9]+:[0-9]+(:[0-9]+ [0-9]{4})?`, "TIME"},
		{`[A-Za-z0-9_.-]+@pbshead`, "USER@pbshead"},
		{`pbshead:/\S*/`, "pbshead:DIR/"},
		{`\.([oe])[0-9]+\b`, ".${1}NUM"},
		{`(n[0-9])/[0-9]+`, "$1/I"},
		{`[0-9]+kb`, "KB"},
		{`R: ([0-9]+) A: [0-9]+`, "R: $1 A: N"},
	} {
		s = regexp.MustCompile(sub[0]).ReplaceAllString(s, sub[1])
	}
	return s
}

// moving are attributes whose values differ from run to run; their shape doesn't.
var moving = []string{"session_id", "history_timestamp", "resources_used.walltime", "resources_used.cput", "resources_used.cpupercent"}

// asked are attributes that repeat what qsub was given, where a scenario gives it something else than the record's.
var asked = []string{"Submit_arguments", "Resource_List.walltime"}

// shape of a value: its digits don't count.
func shape(s string) string { return regexp.MustCompile(`[0-9]+`).ReplaceAllString(s, "N") }

var attribute = regexp.MustCompile(`(?m)^    ([A-Za-z_.]+) = (.*(?:\n\t.*|\n[^ \n].*)*)$`)

func names(text string, leave []string) (order []string, values map[string]string) {
	values = map[string]string{}
	for _, m := range attribute.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(leave, m[1]) {
			order = append(order, m[1])
			values[m[1]] = plain(strings.ReplaceAll(m[2], "\n\t", ""))
		}
	}
	return order, values
}

// The fake says of a job what the record of the same case says: the same attributes, in the same order, with the
// same values but for what differs between any two runs.
func TestFakeSaysWhatTheRecordSays(t *testing.T) {
	for name, sc := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blob, err := os.ReadFile(records + name + ".qstat-x-f.out")
			require.NoError(t, err)
			record := string(blob)
			config := fakepbs.Default()
			if sc.config != nil {
				sc.config(&config)
			}
			r := &rig{Lab: lab.Start(t, config), t: t, dir: t.TempDir(), config: config}
			_, values := names(record, nil)
			args := sc.args
			if args == "" {
				args = values["Submit_arguments"]
			}
			words := strings.Fields(args)
			last := len(words) - 1
			script := filepath.Join(r.dir, words[last])
			require.NoError(t, os.MkdirAll(filepath.Dir(script), 0o700))
			require.NoError(t, os.WriteFile(script, []byte(sc.script), 0o700))
			if sc.before != "" {
				out, errs, code := r.Run(t, r.dir, sleepScript, "qsub", strings.Fields(sc.before)...)
				require.Zero(t, code, errs)
				running(r, strings.TrimSpace(out))
			}
			out, errs, code := r.Run(t, r.dir, "", "qsub", words...)
			require.Zero(t, code, errs)
			id := strings.TrimSpace(out)
			if sc.conduct != nil {
				sc.conduct(r, id)
			}
			got := r.await(id, sc.state)

			want, wantValues := names(record, sc.differs)
			have, haveValues := names(got, sc.differs)
			if !slices.Contains(want, "session_id") { // the server learns it some time after the start, of a short job never
				have = without(have, "session_id")
			}
			assert.Equal(t, want, have)
			for _, attr := range want {
				value, both := haveValues[attr]
				switch {
				case !both, attr == "Variable_List", attr == "jobdir", sc.args != "" && slices.Contains(asked, attr):
				case slices.Contains(moving, attr):
					assert.Equal(t, shape(wantValues[attr]), shape(value), attr)
				default:
					assert.Equal(t, wantValues[attr], value, attr)
				}
			}
			if !strings.Contains(args, "-V") {
				assert.Equal(t, variableNames(record), variableNames(got))
			}
		})
	}
}

// unplayed are the records of what the fake can't do: a program in place of a script, dependencies, times, hooks, staging,
// limits that a host enforces, a host that is switched off and a server that is started anew.
var unplayed = []string{
	"E-exiting", "F-after-server-restart", "F-bigout", "F-depend-failed", "F-exe-exit3", "F-exe-missing", "F-exe-sigkill",
	"F-exe-sigterm-self", "F-exe-walltime", "F-mem", "F-qsig-term", "H-depend", "Q-all-offline", "Q-all-offline4", "Q-limit",
	"R-after-server-restart", "W-exectime", "hook-execjob_begin-reject", "hook-execjob_begin-reject-after-qdel",
	"stagein-missing",
}

func TestEveryRecordIsPlayedOrSaidNotToBe(t *testing.T) {
	files, err := filepath.Glob(records + "*.qstat-x-f.out")
	require.NoError(t, err)
	require.Len(t, files, len(scenarios)+len(unplayed))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".qstat-x-f.out")
		_, played := scenarios[name]
		assert.NotEqual(t, played, slices.Contains(unplayed, name), name)
	}
}

func without(list []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == name })
}

// variableNames of a job, but for those that depend on the submitting shell.
func variableNames(text string) []string {
	_, values := names(text, nil)
	var out []string
	for kv := range strings.SplitSeq(values["Variable_List"], ",") {
		name, _, _ := strings.Cut(kv, "=")
		if name != "PBS_O_LANG" && name != "PBS_O_SHELL" {
			out = append(out, name)
		}
	}
	return out
}

// Answers of the commands that end in an error, word for word.
func TestFakeRefusesAsTheRecordsDo(t *testing.T) {
	down := func(c *fakepbs.Config) { c.Down = true }
	for name, c := range map[string]struct {
		config func(*fakepbs.Config)
		args   string // "" those of the record
		before string
	}{
		"err-unknown-queue-f": {}, "err-illegal-resource-in-select-f": {}, "err-illegal-resource": {}, "err-illegal-attr-W-f": {},
		"err-bad-walltime": {}, "err-bad-mem": {}, "err-mixed": {}, "err-select-nodes": {}, "err-queue-acl": {}, "err-queue-disabled": {},
		"err-walltime-over-max": {}, "err-no-script": {}, "err-neg-select": {},
		"err-bad-o":       {args: "qsub -o '' jobs/ok.sh"},
		"err-max-queued":  {before: "-q limited jobs/sleep.sh"},
		"hook-rejectme-f": {config: func(c *fakepbs.Config) { c.HookReject = "kept out by site policy: project is missing (use -P)" }},
		"hook-rejectml-f": {config: func(c *fakepbs.Config) { c.HookReject = "line one\nline two: ünï \"quoted\"" }},
		"qstat-unknown":   {}, "qstat-x-unknown": {}, "qstat-malformed": {}, "qdel-unknown": {},
		"nohistory-qselect-x":                        {config: func(c *fakepbs.Config) { c.History = false }},
		"nohistory-qstat-x-new":                      {config: func(c *fakepbs.Config) { c.History = false }},
		"serverdown.qsub_-f_jobs_ok.sh":              {config: down},
		"serverdown.qstat_-f_-F_json":                {config: down},
		"serverdown.qstat_-x_-f_-F_json_537.pbshead": {config: down},
		"serverdown.qselect_-N_survive":              {config: down},
		"serverdown.qdel_537.pbshead":                {config: down},
		"serverdown.pbsnodes_-a_-F_json":             {config: down},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := func(kind string) string {
				b, _ := os.ReadFile(answers + name + "." + kind)
				return string(b)
			}
			config := fakepbs.Default()
			if c.config != nil {
				c.config(&config)
			}
			l := lab.Start(t, config)
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "jobs"), 0o700))
			for script, text := range map[string]string{"ok": okScript, "sleep": sleepScript} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "jobs", script+".sh"), []byte(text), 0o700))
			}
			if c.before != "" {
				_, errs, code := l.Run(t, dir, "", "qsub", strings.Fields(c.before)...)
				require.Zero(t, code, errs)
			}
			command, result, _ := strings.Cut(read("cmd"), "\n")
			if c.args != "" {
				command = c.args
			}
			words := strings.Fields(command)
			for i := range words {
				words[i] = strings.Trim(words[i], "'")
			}
			out, errs, code := l.Run(t, dir, "", words[0], words[1:]...)
			assert.Equal(t, "rc="+itoa(code), strings.Fields(result)[0])
			assert.Equal(t, plain(read("err")), plain(errs))
			stamp := regexp.MustCompile(`"timestamp":\t[0-9]+`)
			assert.Equal(t, stamp.ReplaceAllString(read("out"), "T"), stamp.ReplaceAllString(out, "T"))
		})
	}
}
