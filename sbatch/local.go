package sbatch

import (
	"errors"
	"strconv"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// killMargin is what a local job has beyond its own grace before it is killed, so that the agents' reports get out.
const killMargin = 5 * time.Second

// renderLocal renders for scheduler/local, whose options are described there.
func renderLocal(r scheduler.Request, l scheduler.Launch) (scheduler.Submission, error) {
	if len(l.Launcher) == 0 {
		return scheduler.Submission{}, errors.New("rendering for the local scheduler: no launcher is named")
	}
	delay := (r.Signal.Grace + killMargin).String()
	output := translate(r, l, "%j", "%r", doublePercent)
	launch := append([]string{}, l.Launcher...)
	launch = append(launch, "--nodes="+strconv.Itoa(r.Nodes), "--ranks-per-node="+strconv.Itoa(r.RanksPerNode), "--kill-delay="+delay)
	if PerRank(r.Output) {
		launch = append(launch, "--output="+output)
		output = doublePercent(l.Dir) + "/batch-%j.out"
	}
	text, err := script(r, l, parts{
		JobID:    "${OPENAI4S_JOB_ID:-}",
		Deadline: true,
		Launch:   words(launch...) + ` -- "$AGENT"`,
	})
	if err != nil {
		return scheduler.Submission{}, err
	}
	return scheduler.Submission{
		Name: l.JobName,
		Args: []string{
			"--chdir=" + r.Workdir,
			"--output=" + output,
			"--nodes=" + strconv.Itoa(r.Nodes),
			"--ranks-per-node=" + strconv.Itoa(r.RanksPerNode),
			"--time=" + r.Walltime.String(),
			"--kill-delay=" + delay,
		},
		Script: text,
		Dir:    l.Dir,
	}, nil
}
