package local

import (
	"slices"
	"strings"
)

// passed are the variables of the submitting shell that a job starts with, those with a trailing "*" by their
// prefix: where programs and libraries are found, who and where the user is. It is a list of what is let through,
// as a cluster's --export=NONE would have it: whatever else a shell holds (tokens, a surrounding job's variables)
// stays there, and a job that needs more says so in [env] or [secrets].
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*",
	"LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
	"MODULEPATH", "MODULESHOME", "LMOD_*", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "SSL_CERT_FILE", "SSL_CERT_DIR",
}

// environment picks what a job starts with out of a shell's variables.
func environment(shell []string) []string {
	var env []string
	for _, v := range shell {
		name, _, _ := strings.Cut(v, "=")
		if slices.ContainsFunc(passed, func(p string) bool {
			prefix, open := strings.CutSuffix(p, "*")
			return name == p || open && strings.HasPrefix(name, prefix)
		}) {
			env = append(env, v)
		}
	}
	return env
}
