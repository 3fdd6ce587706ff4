package sbatch

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// maxSlurmSignal is the longest warning Slurm's --signal takes, in seconds.
const maxSlurmSignal = 65535

// strangers are variables that change srun and that only a surrounding step sets, never sbatch for this job:
// --export=NONE lets them through, as it lets everything through whose name begins with SLURM_.
var strangers = []string{
	"SLURM_EXPORT_ENV",
	"SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE",
	"SLURM_MEM_BIND", "SLURM_MEM_BIND_LIST", "SLURM_MEM_BIND_PREFER", "SLURM_MEM_BIND_SORT",
	"SLURM_MEM_BIND_TYPE", "SLURM_MEM_BIND_VERBOSE",
	"SLURM_KILL_BAD_EXIT", "SLURM_LABELIO", "SLURM_MULTI_PROG", "SLURM_NO_KILL", "SLURM_OPEN_MODE",
	"SLURM_RELATIVE", "SLURM_STDERRMODE", "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_TIMELIMIT", "SLURM_WAIT",
}

// renderSlurm renders for sbatch.
func renderSlurm(r scheduler.Request, l scheduler.Launch) (scheduler.Submission, error) {
	warning := int64((r.Signal.BeforeWalltime + time.Second - 1) / time.Second)
	if warning > maxSlurmSignal {
		return scheduler.Submission{}, fmt.Errorf("[signal] before_walltime is %s; Slurm warns at most %s ahead", r.Signal.BeforeWalltime, maxSlurmSignal*time.Second)
	}
	output := translate(r, l, "%j", "%t", doublePercent)
	if strings.Contains(output, `\`) || strings.Contains(l.Dir, `\`) {
		return scheduler.Submission{}, fmt.Errorf("output %q: Slurm doesn't replace its codes in a name with a backslash; choose a path without one", output)
	}

	var folders []string
	launch := []string{
		"srun", "--export=ALL", "--kill-on-bad-exit=1", "--wait=0", "--input=none",
		"--nodes=" + strconv.Itoa(r.Nodes),
		"--ntasks=" + strconv.Itoa(r.Size()),
		"--ntasks-per-node=" + strconv.Itoa(r.RanksPerNode),
		"--distribution=block",
	}
	if r.CPUsPerRank > 0 {
		launch = append(launch, "--cpus-per-task="+strconv.Itoa(r.CPUsPerRank))
	}
	if PerRank(r.Output) {
		perRank, err := srunOutput(r, output)
		if err != nil {
			return scheduler.Submission{}, err
		}
		launch = append(launch, "--open-mode=append", "--output="+perRank)
		folders = rankFolders(r, l)
		output = doublePercent(l.Dir) + "/batch-%j.out"
	}

	unset := slices.Clone(strangers)
	if r.MemoryPerNode > 0 {
		unset = append(unset, "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU")
	}
	p := parts{
		JobID:   "${SLURM_JOB_ID:-}",
		Prepare: append(folders, "unset "+strings.Join(unset, " ")),
		Launch:  words(launch...) + ` "$AGENT"`,
	}
	for _, o := range slurmOptions(r, l, output, warning) {
		p.Directives = append(p.Directives, "#SBATCH "+o)
	}
	text, err := script(r, l, p)
	if err != nil {
		return scheduler.Submission{}, err
	}
	return scheduler.Submission{Name: l.JobName, Args: []string{"--parsable"}, Script: text, Dir: l.Dir}, nil
}

// twice finds a percent sign of a path's own that becomes a code where it is read twice.
var twice = regexp.MustCompile(`%%[0-9]*[a-zA-Z%]`)

// srunOutput is srun's --output. srun of 26.05 replaces its codes and then, on the node, those that it finds in the
// result: "%%j" becomes the job's number. A work folder with such a name is left away, as srun runs in it.
func srunOutput(r scheduler.Request, output string) (string, error) {
	if !twice.MatchString(output) {
		return output, nil
	}
	beneath, inside := strings.CutPrefix(output, doublePercent(r.Workdir)+"/")
	if !inside || twice.MatchString(beneath) {
		return "", fmt.Errorf("output %q: not every Slurm keeps a percent sign before a letter or another one in a path of the ranks' own files; choose a path without", r.Output)
	}
	return beneath, nil
}

// rankFolders are the script's lines that make the folders of the ranks' own output files: srun makes none, and ends
// with 0 where one is missing.
func rankFolders(r scheduler.Request, l scheduler.Launch) []string {
	dir := filepath.Dir(r.Output)
	if dir == "." {
		return nil
	}
	r.Output = dir
	mkdir := "mkdir -p -- " + translate(r, l, `"$JOBID"`, `"$RANK"`, Quote) + fmt.Sprintf(` || fail %d "the folder of the ranks' output can't be made on $(uname -n)"`, ExitOutput)
	if !PerRank(dir) {
		return []string{mkdir}
	}
	return []string{"for RANK in $(seq 0 " + strconv.Itoa(r.Size()-1) + "); do", "\t" + mkdir, "done"}
}

// slurmOptions are the directives, the site's own last.
func slurmOptions(r scheduler.Request, l scheduler.Launch, output string, warning int64) []string {
	options := []string{
		option("--job-name", l.JobName),
		option("--comment", l.JobName),
		option("--nodes", strconv.Itoa(r.Nodes)),
		option("--ntasks-per-node", strconv.Itoa(r.RanksPerNode)),
		option("--time", SlurmTime(r.Walltime)),
		option("--chdir", r.Workdir),
		option("--output", output),
		"--open-mode=append",
		"--export=NONE",
	}
	add := func(name, value string) {
		if value != "" {
			options = append(options, option(name, value))
		}
	}
	if r.CPUsPerRank > 0 {
		add("--cpus-per-task", strconv.Itoa(r.CPUsPerRank))
	}
	if r.MemoryPerNode > 0 {
		add("--mem", strconv.FormatInt((r.MemoryPerNode+1<<20-1)>>20, 10)+"M")
	}
	if r.GPUsPerNode > 0 {
		count := strconv.Itoa(r.GPUsPerNode)
		if r.Placement.GPUType != "" {
			count = r.Placement.GPUType + ":" + count
		}
		if r.Placement.GPUStyle == "gpus" {
			add("--gpus-per-node", count)
		} else {
			add("--gres", "gpu:"+count)
		}
	}
	add("--partition", r.Placement.Partition)
	add("--qos", r.Placement.QoS)
	add("--account", r.Placement.Account)
	if r.Restarts > 0 {
		options = append(options, "--requeue")
	} else {
		options = append(options, "--no-requeue")
	}
	if warning > 0 {
		options = append(options, fmt.Sprintf("--signal=%d@%d", warningSignal, warning))
	}
	return append(options, r.Placement.Directives...)
}

// warningSignal is SIGWINCH, by number since older versions don't know its name. Slurm sends it to every process of the
// step, the user's own included, and this is a signal that a program without a handler ignores: USR1 would kill it.
const warningSignal = 28

// option writes one option for a #SBATCH line.
func option(name, value string) string {
	return name + "=" + separators.ReplaceAllStringFunc(directiveWord(value), func(s string) string {
		return s[:len(s)-1] + `\` + s[len(s)-1:]
	})
}

// directiveWord quotes a value for a #SBATCH line, which sbatch takes apart itself: blanks and "#" end a word,
// quotes and backslashes mean what they mean to a shell.
func directiveWord(s string) string {
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return c != '=' && c != '[' && c != ']' && special(c) }) < 0 {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// separators are words that sbatch blanks out wherever they stand in a line, as they once separated the parts of
// a heterogeneous job; it looks for them before it undoes escapes.
var separators = regexp.MustCompile(`(?i)(hetjo|packjo)b`)

// SlurmTime writes a walltime as D-HH:MM:SS, rounded up to the minute, which is as fine as Slurm counts.
func SlurmTime(d time.Duration) string {
	m := int64((d + time.Minute - 1) / time.Minute)
	return fmt.Sprintf("%d-%02d:%02d:00", m/(24*60), m/60%24, m%60)
}
