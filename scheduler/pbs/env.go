package pbs

import (
	"slices"
	"strings"
)

// kept are the PBS_ variables a client finds its server by. All others describe a surrounding job, or change what
// qsub reads (PBS_DPREFIX), and don't leak into a submission.
var kept = []string{
	"PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME", "PBS_SERVER", "PBS_DEFAULT", "PBS_PRIMARY", "PBS_SECONDARY",
	"PBS_BATCH_SERVICE_PORT", "PBS_LEAF_NAME", "PBS_LEAF_ROUTERS", "PBS_AUTH_METHOD", "PBS_ENCRYPT_METHOD",
}

// clean is the environment of every command: this process's own without what a surrounding job or MPI launcher
// set, with messages in English and times in UTC.
func clean(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case slices.Contains(kept, name):
		case strings.HasPrefix(name, "PBS_"), strings.HasPrefix(name, "PMI"), strings.HasPrefix(name, "SLURM_"),
			name == "TZ", name == "LANG", name == "LANGUAGE", strings.HasPrefix(name, "LC_"):
			continue
		}
		out = append(out, kv)
	}
	return append(out, "LC_ALL=C", "TZ=UTC")
}
