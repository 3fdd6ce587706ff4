// Package sbatch renders batch scripts and submit arguments for Slurm, PBS and the local scheduler: bytes in,
// bytes out, nothing read, nothing run.
//
// The body of the script is one template for all of them (script.sh.tmpl); a scheduler's own file adds its
// directives, the variable its job id is in, and its launch line. A script holds paths, ids and numbers, never a
// credential, an environment or the user's command: those reach the ranks over their authenticated connection.
package sbatch

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// MaxScript is the largest script that is handed over, in bytes. Ours have about 3 kB; what is far beyond that
// is a mistake in the site's directives, and schedulers answer it with words that don't say so.
const MaxScript = 64 << 10

// The script's own exit codes, before any rank was started.
const (
	ExitClaim  = 10 // another job holds the allocation, no epoch is left, or RUN can't be written
	ExitAgent  = 11 // the agent isn't there or can't be executed
	ExitBundle = 12 // the epoch's bundle isn't there
	ExitOutput = 13 // a folder of the ranks' output can't be made
)

// Render makes the submission of an accepted request. It is pure. An error says which value can't be said to
// this scheduler.
func Render(r scheduler.Request, l scheduler.Launch) (scheduler.Submission, error) {
	switch {
	case !filepath.IsAbs(l.Dir):
		return scheduler.Submission{}, fmt.Errorf("the workload's folder %q is not an absolute path", l.Dir)
	case !filepath.IsAbs(l.Agent):
		return scheduler.Submission{}, fmt.Errorf("the agent's path %q is not absolute", l.Agent)
	case !filepath.IsAbs(r.Workdir):
		return scheduler.Submission{}, fmt.Errorf("workdir %q is not an absolute path", r.Workdir)
	case r.Nodes < 1 || r.RanksPerNode < 1:
		return scheduler.Submission{}, fmt.Errorf("%d nodes with %d ranks each can't be rendered", r.Nodes, r.RanksPerNode)
	}
	switch r.System {
	case "slurm":
		return renderSlurm(r, l)
	case "pbs":
		return renderPBS(r, l)
	case "local":
		return renderLocal(r, l)
	}
	return scheduler.Submission{}, fmt.Errorf("rendering for scheduler %q: %w", r.System, scheduler.ErrUnsupported)
}

// parts is what a scheduler adds to the common script.
type parts struct {
	Directives []string // whole lines, "#SBATCH --nodes=4"; they come before any command
	JobID      string   // shell text that expands to the job id, `${SLURM_JOB_ID:-}`
	Deadline   bool     // the scheduler warns nobody before the walltime: the agents get OPENAI4S_DEADLINE
	Prepare    []string // shell lines before the launch, values quoted
	Launch     string   // shell text of the launch line, values quoted; it may use "$AGENT", "$RUN", "$JOBID" and "$N"
}

//go:embed script.sh.tmpl
var scriptText string

var scriptTemplate = template.Must(template.New("script").Funcs(template.FuncMap{"quote": Quote}).Parse(scriptText))

// script renders the common body around p.
func script(r scheduler.Request, l scheduler.Launch, p parts) ([]byte, error) {
	for _, text := range append([]string{l.Dir, l.Agent, string(l.Workload), string(l.Allocation)}, p.Directives...) {
		if err := oneLine(text); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	err := scriptTemplate.Execute(&b, map[string]any{
		"Parts":      p,
		"Run":        l.Dir,
		"Agent":      l.Agent,
		"Workload":   string(l.Workload),
		"Allocation": string(l.Allocation),
		"First":      l.FirstEpoch,
		"Last":       l.FirstEpoch + int64(r.Restarts),
		"Walltime":   int64((r.Walltime + time.Second - 1) / time.Second),
		"ExitClaim":  ExitClaim,
		"ExitAgent":  ExitAgent,
		"ExitBundle": ExitBundle,
	})
	if err != nil {
		return nil, fmt.Errorf("rendering the script: %w", err)
	}
	if b.Len() > MaxScript {
		return nil, fmt.Errorf("the script has %d bytes, more than the %d that are handed over; shorten the profile's directives", b.Len(), MaxScript)
	}
	return b.Bytes(), nil
}

// oneLine refuses what can't stand in one line of a script.
func oneLine(s string) error {
	if i := strings.IndexAny(s, "\x00\n\r"); i >= 0 {
		return fmt.Errorf("%q holds a line break or NUL at byte %d, which no batch script can carry", s, i)
	}
	return nil
}

// words quotes an argument list for the shell.
func words(args ...string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = Quote(a)
	}
	return strings.Join(quoted, " ")
}
