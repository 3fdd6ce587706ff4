package job

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/openai4s/hpc/internal/tomlfile"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

const (
	maxEnv      = 4096
	maxEnvValue = 128 << 10 // bytes; the kernel's limit on one string
)

// secretWords give a variable's name away as a secret's, each as a whole word between underscores.
var secretWords = []string{
	"SECRET", "SECRETS", "TOKEN", "TOKENS", "PASSWORD", "PASSWORDS", "PASSWD", "CREDENTIAL", "CREDENTIALS", "PRIVATE", "OAUTH", "BEARER", "COOKIE",
}

// secretPairs are two words that do so side by side.
var secretPairs = [][2]string{{"API", "KEY"}, {"API", "KEYS"}, {"ACCESS", "KEY"}, {"ACCESS", "KEYS"}}

// secretShaped returns the word that makes a name look like a secret's, "" where none does.
func secretShaped(name string) string {
	words := strings.Split(strings.ToUpper(name), "_")
	for i, w := range words {
		if slices.Contains(secretWords, w) {
			return w
		}
		if i > 0 && slices.Contains(secretPairs, [2]string{words[i-1], w}) {
			return words[i-1] + "_" + w
		}
		if w == "APIKEY" || w == "ACCESSKEY" {
			return w
		}
	}
	return ""
}

// injecting are the variables by which a shell, loader or interpreter runs code of the setter's choice before the
// command's own. Search paths (PATH, PYTHONPATH, PERL5LIB, R_LIBS) are not among them: jobs need them, and what they
// bring in has to be asked for by name.
var injecting = []string{
	"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "ZDOTDIR", // shells
	"GCONV_PATH", // the C library
	"PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONWARNINGS", "PYTHONPLATLIBDIR",
	"PERL5OPT", "PERL5DB", "RUBYOPT", "NODE_OPTIONS", "LUA_INIT",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
	"GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_EDITOR", "GIT_PAGER", "GIT_TEMPLATE_DIR",
}

var injectingPrefixes = []string{"LD_", "DYLD_", "R_PROFILE", "R_ENVIRON", "BASH_FUNC_", "LUA_INIT_", "GIT_CONFIG"}

// ours are the variables that every rank gets from openai4s, or from the scheduler.
var ours = []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}

var oursPrefixes = []string{"OPENAI4S_", "SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PBS_", "PMI_", "PMIX_"}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// variable checks a name of [env] or [secrets] and tells whether it may be set.
func (c *checker) variable(key tomlfile.Key, name string) bool {
	switch {
	case !variable.MatchString(name):
		c.bad(key, "letters, digits and underscores, not a digit first", "%s is not a variable's name", tomlfile.Show(name))
	case len(name) > 256:
		c.bad(key, "", "the name has %d bytes, it may have 256", len(name))
	case slices.Contains(ours, name) || hasPrefix(name, oursPrefixes):
		c.bad(key, "leave it out", "openai4s or the scheduler sets %s itself", name)
	case (slices.Contains(injecting, name) || hasPrefix(name, injectingPrefixes)) && !slices.Contains(c.allowEnv, name):
		c.bad(key, fmt.Sprintf("the site can allow it: allow_env = [%q] in [site] of site.toml; or set it in setup, or in the command", name),
			"%s makes programs run code that isn't theirs", name)
	default:
		return true
	}
	return false
}

func (c *checker) env(env map[string]string) map[string]string {
	if len(env) > maxEnv {
		c.bad("env", "", "has %d variables, it may have %d", len(env), maxEnv)
	}
	for name, value := range env {
		key := tomlfile.Key("env").Dot(name)
		if !c.variable(key, name) {
			continue
		}
		word := secretShaped(name)
		switch {
		case word != "":
			c.bad(key, fmt.Sprintf(`put it into [secrets], like %[1]s = { env = "%[1]s" }; its value then never reaches the scheduler`, name),
				"the name says %s: a secret must not stand in a job file", word)
		case len(value) > maxEnvValue:
			c.bad(key, "put it into a file", "has %d bytes, a variable may have %d", len(value), maxEnvValue)
		}
	}
	return env
}
