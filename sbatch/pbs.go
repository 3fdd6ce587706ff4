package sbatch

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// reportMargin is what ranks have beyond their own grace, once the gang's end is known, before the launcher gives
// them up: time for their last reports and for rank 0 to publish.
const reportMargin = 30 * time.Second

// findRemote finds PBS's own rsh. A job's PATH comes from the user's login profile, which needn't know of PBS.
var findRemote = []string{
	`RSH=$(command -v pbs_tmrsh) ||`,
	`	RSH=$(sed -n 's/^PBS_EXEC=//p' "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null)/bin/pbs_tmrsh`,
	`test -x "$RSH" || fail ` + strconv.Itoa(ExitAgent) + ` "pbs_tmrsh is neither in PATH nor in the PBS_EXEC of pbs.conf on $(uname -n)"`,
	`test -r "${PBS_NODEFILE:-}" || fail ` + strconv.Itoa(ExitAgent) + ` "PBS gave this script no node file"`,
}

// renderPBS renders for qsub. Everything is said by arguments, where no value needs quoting: what qsub makes of
// quotes and blanks in a #PBS line is its own.
//
// One task per rank is started on every host by our own launcher: pbsdsh ends with 0 whatever its tasks end with.
// Tasks see nothing that the script exports, and what they print goes to the job's -o file, never to the script's
// own output. So the agent is told everything by arguments, none of them a secret, and -o is the job's output.
func renderPBS(r scheduler.Request, l scheduler.Launch) (scheduler.Submission, error) {
	out, err := placeOutput(r, l)
	if err != nil {
		return scheduler.Submission{}, err
	}
	launch := []string{
		"launch",
		"--nodes=" + strconv.Itoa(r.Nodes),
		"--ranks-per-node=" + strconv.Itoa(r.RanksPerNode),
		"--grace=" + (r.Signal.Grace + reportMargin).String(),
	}
	text, err := script(r, l, parts{
		JobID:    "${PBS_JOBID:-}",
		Deadline: true,
		Prepare:  append(out.prepare, findRemote...),
		Launch: `"$AGENT" ` + words(launch...) + out.launch + ` --remote="$RSH" --node-file="$PBS_NODEFILE" --exit-file="$RUN/exit-$N" -- \
	"$AGENT" --bundle "$OPENAI4S_BUNDLE" --epoch "$N" --job "$JOBID" --deadline "$OPENAI4S_DEADLINE"`,
	})
	if err != nil {
		return scheduler.Submission{}, err
	}
	args := pbsArguments(r, l, out.file)
	for _, a := range args {
		if err := oneLine(a); err != nil {
			return scheduler.Submission{}, err
		}
	}
	return scheduler.Submission{Name: l.JobName, Args: args, Script: text, Dir: l.Dir}, nil
}

// pbsArguments are the arguments of qsub, the site's own last. -f keeps qsub from leaving a process behind that
// holds our descriptors.
func pbsArguments(r scheduler.Request, l scheduler.Launch, output string) []string {
	args := []string{"-f", "-N", l.JobName}
	add := func(option, value string) {
		if value != "" {
			args = append(args, option, value)
		}
	}
	add("-q", r.Placement.Queue)
	add("-A", r.Placement.Account)
	add("-P", r.Placement.Project)
	place := r.Placement.Place
	if place == "" {
		place = "scatter" // chunks share a host otherwise
	}
	rerun := "n"
	if r.Restarts > 0 {
		rerun = "y"
	}
	args = append(args,
		"-l", "select="+pbsSelect(r),
		"-l", "place="+place,
		"-l", "walltime="+PBSTime(r.Walltime),
		"-j", "oe", "-koed", "-o", output, // only -koed writes while the job runs
		"-r", rerun,
		"-m", "n",
		"-S", "/bin/sh",
		"-W", "umask=022", // the output is the user's alone otherwise, 0600
	)
	for _, d := range r.Placement.Directives {
		option, value, _ := strings.Cut(unquoted.Replace(strings.TrimSpace(d)), " ")
		args = append(args, option)
		if value = strings.TrimSpace(value); value != "" {
			args = append(args, value)
		}
	}
	return args
}

// unquoted takes the quotes away that a site wrote around a directive's value: there is no shell to do it.
var unquoted = strings.NewReplacer(`"`, "", `'`, "")

// pbsSelect asks for one chunk per node: PBS counts processors and memory by chunk.
func pbsSelect(r scheduler.Request) string {
	chunk := []string{strconv.Itoa(r.Nodes)}
	add := func(resource, value string) {
		if !asksFor(r.Placement.SelectExtra, resource) {
			chunk = append(chunk, resource+"="+value)
		}
	}
	perRank := max(r.CPUsPerRank, 1)
	add("ncpus", strconv.Itoa(perRank*r.RanksPerNode))
	add("mpiprocs", strconv.Itoa(r.RanksPerNode))
	add("ompthreads", strconv.Itoa(perRank)) // PBS sets OMP_NUM_THREADS, to all of the chunk's processors if not told
	if r.MemoryPerNode > 0 {
		add("mem", strconv.FormatInt((r.MemoryPerNode+1<<20-1)>>20, 10)+"mb")
	}
	if r.GPUsPerNode > 0 {
		add("ngpus", strconv.Itoa(r.GPUsPerNode))
	}
	if extra := strings.Trim(r.Placement.SelectExtra, ": "); extra != "" {
		chunk = append(chunk, extra)
	}
	return strings.Join(chunk, ":")
}

// asksFor tells whether a profile's own part of select names a resource, which then wins.
func asksFor(extra, resource string) bool {
	for part := range strings.SplitSeq(extra, ":") {
		if name, _, ok := strings.Cut(strings.TrimSpace(part), "="); ok && name == resource {
			return true
		}
	}
	return false
}

// PBSTime writes a walltime as HH:MM:SS, hours as many as there are, rounded up to the second.
func PBSTime(d time.Duration) string {
	s := int64((d + time.Second - 1) / time.Second)
	return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
}

// output says where a job's output goes.
type output struct {
	file    string   // of -o, in a folder that exists
	prepare []string // script lines that give the file its name
	launch  string   // launcher flags, shell text
}

// plainPath is a path that -o takes as it is: a colon would end a host's name.
var plainPath = regexp.MustCompile(`^/[^:\x00-\x1f\x7f]*$`)

// placeOutput finds the file for -o, which is fixed before there is a job id. A pattern without the id is -o itself.
// One with it gets a name of the allocation's in the same folder, and its own as a second one when the job runs: the
// first goes with the script, since every task opens it anew, and stays where the job may be started again. A pattern of each rank's own file leaves only
// the script's words to -o.
func placeOutput(r scheduler.Request, l scheduler.Launch) (output, error) {
	var out output
	batch := "batch-" + l.Allocation.Hex() + ".out"
	switch dir := filepath.Dir(r.Output); {
	case PerRank(r.Output):
		out.file = filepath.Join(l.Dir, batch)
		out.launch = " --output=" + translate(r, l, `"$JOBID"`, "%r", func(s string) string { return Quote(doublePercent(s)) })
	case !usesJob(r.Output):
		out.file = OutputPath(r.Output, r.Workdir, l.Workload, "", 0)
	default:
		if usesJob(dir) {
			dir = ""
		}
		out.file = OutputPath(filepath.Join(dir, "."+batch), r.Workdir, l.Workload, "", 0)
		linked := `trap 'rm -f -- "$BATCH"' EXIT`
		if r.Restarts > 0 {
			linked = ": # the next start opens the first name again"
		}
		out.prepare = []string{
			"BATCH=" + Quote(out.file),
			"OUTPUT=" + translate(r, l, `"$JOBID"`, "", Quote),
			`mkdir -p "${OUTPUT%/*}"`,
			`if test "$BATCH" -ef "$OUTPUT" || ln -- "$BATCH" "$OUTPUT"; then`,
			`	` + linked,
			`else`,
			`	printf 'openai4s: the output stays in %s\n' "$BATCH"`,
			`fi`,
		}
	}
	if !plainPath.MatchString(out.file) {
		return output{}, fmt.Errorf("output %q: qsub takes a colon or a control character in it for something else; choose a path without one", out.file)
	}
	return out, nil
}

// usesJob tells whether an output pattern holds the job's id.
func usesJob(pattern string) bool {
	uses := false
	expand(pattern, func(code byte) string {
		uses = uses || code == 'j'
		return ""
	}, nil)
	return uses
}
