//go:build live

package live_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// open is what a search of files by anybody finds.
const open = "open to everybody"

// search is one run of a job with secrets, and everybody who looks for them.
type search struct {
	*testing.T
	rig     *rig.Rig
	needles []needle
	magnet  *magnet
	since   string // a file as old as the search, for find -newer
	job     string
	run     string
	id      string
}

// TestCase61NothingLeaks: no secret of a job is anywhere but where it belongs, while it runs and after it, on a
// cluster that keeps every job's script and environment. What Slurm itself shows of a job is case 62.
func TestCase61NothingLeaks(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Site: `job_name_prefix = "leak"`})
	alice := r.Alice(t)
	s := &search{T: t, rig: r, since: filepath.Join(r.Dir, "since")}
	require.NoError(t, os.WriteFile(s.since, nil, 0o644))

	value := "hf_" + rig.Random(t, 24)
	alice.Env = append(alice.Env, "TOKEN_OF_ALICE="+value)
	release := filepath.Join(alice.Home, "release")
	job := alice.JobFile(t, rig.Shell(4, `echo "rank $OPENAI4S_RANK has ${#HF_TOKEN}"; echo made >made-$OPENAI4S_RANK.txt; until test -e `+release+`; do sleep 0.2; done`,
		"restarts = 1\n[secrets]\nHF_TOKEN = { env = \"TOKEN_OF_ALICE\" }\n[[inputs]]\npath = \"job.toml\"\n[outputs]\npublish = \"results\"\n[outputs.ports]\nmade = [\"*.txt\"]\n"))
	results := filepath.Join(filepath.Dir(job), "results")
	submitted := alice.Run(t, "submit", "--json", job)
	require.Zero(t, submitted.Code, submitted.Stderr)
	s.id = submitted.Doc(t).Text("id")
	w := alice.AwaitPhase(t, s.id, "ACTIVE")
	s.job, s.run = w.Text("job", "id"), w.Text("run")
	rig.Await(t, rig.Patience, "the four commands to run", func() bool { return len(s.commands()) == 4 })

	require.NoError(t, os.WriteFile(filepath.Join(r.Dir, "open"), []byte(open), 0o644))
	s.collect(value)
	s.whereTheyBelong(value)
	alice.Env = nil // from here on nobody needs it

	s.asBob("running")
	s.asRoot("running")
	s.asOwner("running", alice, job)
	alice.Write(t, "release", "")
	w = alice.AwaitEnd(t, s.id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Contains(t, alice.Read(t, w.Text("output")), fmt.Sprintf("rank 3 has %d", len(value)))
	accounted(t, shared, s.job)
	require.Zero(t, alice.Run(t, "verify", results).Code, "what was published is there to be searched")

	s.asBob("over")
	s.asRoot("over")
	s.asOwner("over", alice, job)
	s.clean("what submit printed", submitted.Stdout+submitted.Stderr)
	for _, bundle := range s.bundles() {
		t.Errorf("%s outlived the workload", bundle)
	}
}

// agents are the processes of the ranks.
func (s *search) agents() (pids []int) {
	for _, p := range s.rig.Processes() {
		if p.Command == s.rig.Program("openai4s-agent") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// commands are the ranks' own processes.
func (s *search) commands() (pids []int) {
	for _, p := range s.rig.Processes() {
		if strings.HasPrefix(p.Command, "sh -c echo") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func (s *search) bundles() []string {
	found, err := filepath.Glob(filepath.Join(s.run, "gang-*.bundle"))
	require.NoError(s, err)
	return found
}

// collect learns every secret of the workload.
func (s *search) collect(value string) {
	s.Helper()
	secret, err := os.ReadFile(filepath.Join(s.rig.State(), "worker-bootstrap-secret"))
	require.NoError(s, err)
	require.Len(s, secret, 32)
	s.needles = append(s.needles, newNeedle("the daemon's secret", secret), newNeedle("a [secrets] value", []byte(value)))
	bundles := s.bundles()
	require.Len(s, bundles, 2, "one for each epoch: restarts + 1")
	for _, b := range bundles {
		s.needles = append(s.needles, bundleNeedles(s.T, b)...)
	}
	agents := s.agents()
	require.Len(s, agents, 4)
	for _, pid := range agents {
		s.needles = append(s.needles, memoryNeedles(s.T, pid)...)
	}
	s.magnet = newMagnet(s.needles)
}

// whereTheyBelong proves that the search can find: a search that can't proves nothing.
func (s *search) whereTheyBelong(value string) {
	s.Helper()
	inBundles := map[string]bool{}
	for _, b := range s.bundles() {
		data, err := os.ReadFile(b)
		require.NoError(s, err)
		for _, name := range s.magnet.found(data) {
			inBundles[name] = true
		}
	}
	for _, n := range s.needles {
		if strings.HasPrefix(n.name, "nonce") || strings.HasPrefix(n.name, "signature") {
			require.True(s, inBundles[n.name], "%s is in its bundle", n.name)
		}
	}
	secret, err := os.ReadFile(filepath.Join(s.rig.State(), "worker-bootstrap-secret"))
	require.NoError(s, err)
	require.Equal(s, []string{"the daemon's secret"}, s.magnet.found(secret))
	for _, pid := range s.commands() {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		require.NoError(s, err)
		require.Contains(s, string(environ), "\x00HF_TOKEN="+value)
		require.Equal(s, []string{"a [secrets] value"}, s.magnet.found(environ), "a command knows this much and no more")
	}
}

// clean holds that no secret is in a text.
func (s *search) clean(where, text string) {
	s.Helper()
	if names := s.magnet.found([]byte(text)); len(names) > 0 {
		s.Errorf("%s shows %s", where, strings.Join(names, ", "))
	}
}

// asBob looks as somebody else with an account on the cluster.
func (s *search) asBob(when string) {
	s.Helper()
	bob := s.rig.Bob(s)
	for _, look := range []struct {
		command string
		sees    string // must be in what it shows, or the look is worth nothing
	}{
		{"scontrol show job --details " + s.job, "JobName=leak-"},
		{"scontrol --json show job " + s.job + " || scontrol show job " + s.job, s.job},
		{"scontrol write batch_script " + s.job + " - 2>&1", ""},
		{"scontrol show step " + s.job + ".0 2>&1", ""},
		{"squeue --json --states=all", s.job}, // of jobs that are over 24.11 says nothing without
		{"squeue --states=all --format=%all", s.job},
		{"squeue --states=all --steps --format=%all 2>&1", ""},
		{"sacct --allusers --parsable --format=ALL --jobs=" + s.job, "leak-"},
		{"sacct --allusers --json --jobs=" + s.job, s.job},
		{"sacct --jobs=" + s.job + " --env-vars 2>&1", ""},
		{"sacct --jobs=" + s.job + " --batch-script 2>&1", ""},
		{"sstat --allsteps --parsable --format=ALL " + s.job + " 2>&1", ""},
		{"cat /proc/[0-9]*/cmdline 2>/dev/null", "slurmctld"},
		{"cat /proc/[0-9]*/environ 2>/dev/null", ""},
		{"ps -eo pid,args", "slurmctld"},
		{"find / -xdev -maxdepth 3 -type f -newer " + s.since + " -size -8000k -readable -exec cat {} + 2>/dev/null", ""},
		{"find " + s.rig.Dir + " " + shared.Dir + " /home /run /dev/shm /var/spool /var/log -type f -newer " + s.since + " -readable -exec cat {} + 2>/dev/null", open},
		{"openai4s status --json " + s.id + " 2>&1", "not_found"},
		{"openai4s logs " + s.id + " 2>&1", ""},
		{"ls -laR " + s.rig.Dir + " 2>&1", "site.toml"},
	} {
		ran := bob.Exec(s, "sh", "-c", "PATH="+filepath.Dir(s.rig.Program("openai4s"))+":$PATH; "+look.command)
		require.True(s, strings.Contains(ran.Stdout, look.sees), "%s: %s: %s", when, look.command, ran.Stderr)
		s.clean(when+", as another user: "+look.command, ran.Stdout+ran.Stderr)
	}
}

// asRoot looks into what the scheduler and the daemon keep, and into every process.
func (s *search) asRoot(when string) {
	s.Helper()
	own := map[string]bool{}
	for _, pid := range s.commands() {
		own[fmt.Sprintf("/proc/%d/environ", pid)] = true
	}
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		files, err := filepath.Glob(pattern)
		require.NoError(s, err)
		for _, f := range files {
			// The command's own children have what it has; a process may be gone by now.
			if text, err := os.ReadFile(f); err == nil && !own[f] && !strings.Contains(string(text), "\x00OPENAI4S_RANK=") {
				s.clean(when+", as root: "+f, string(text))
			}
		}
	}
	seen := 0
	for _, dir := range []string{shared.Dir, s.rig.Dir} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // it went meanwhile, or holds no text
			}
			switch {
			case strings.HasSuffix(path, ".bundle"), strings.HasSuffix(path, "/worker-bootstrap-secret"): // where they belong
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			seen++
			for _, name := range s.magnet.found(text) {
				// What was burned is remembered, so that it is never taken again: by nonce, without a signature.
				if path != filepath.Join(s.rig.State(), "state.db") || !strings.HasPrefix(name, "nonce") {
					s.Errorf("%s, as root: %s shows %s", when, path, name)
				}
			}
			return nil
		})
		require.NoError(s, err)
	}
	require.Greater(s, seen, 20, "the logs, spools and databases were looked at")
}

// asOwner looks at everything that the job's owner is shown.
func (s *search) asOwner(when string, alice *rig.User, job string) {
	s.Helper()
	for _, args := range [][]string{
		{"status", s.id}, {"status", "--json", s.id}, {"list"}, {"list", "--json"}, {"logs", s.id}, {"site", "show"}, {"status", "--json"},
	} {
		ran := alice.Run(s, args...)
		require.Zero(s, ran.Code, "%v: %s", args, ran.Stderr)
		s.clean(fmt.Sprintf("%s, to the owner: %v", when, args), ran.Stdout+ran.Stderr)
	}
	alice.Env = []string{"TOKEN_OF_ALICE=" + s.value()}
	for _, args := range [][]string{{"render", job}, {"render", "--json", job}, {"submit", "--dry-run", job}} {
		ran := alice.Run(s, args...)
		require.Zero(s, ran.Code, "%v: %s", args, ran.Stderr)
		require.Contains(s, ran.Stdout, "leak-", "%v", args)
		s.clean(fmt.Sprintf("%s, to the owner: %v", when, args), ran.Stdout+ran.Stderr)
	}
	alice.Env = nil
	for _, look := range []string{"scontrol write batch_script " + s.job + " -", "sacct --jobs=" + s.job + " --batch-script", "sacct --jobs=" + s.job + " --env-vars"} {
		ran := alice.Exec(s, "sh", "-c", look)
		s.clean(fmt.Sprintf("%s, to the owner: %s", when, look), ran.Stdout+ran.Stderr)
		if when == "over" && strings.HasPrefix(look, "sacct") {
			require.Zero(s, ran.Code, "%s: %s", look, ran.Stderr)
			require.NotEmpty(s, ran.Stdout, look)
		}
	}
	info, err := os.Stat(s.run)
	require.NoError(s, err)
	require.Equal(s, fs.FileMode(0o700), info.Mode().Perm())
	require.Equal(s, alice.UID, int(info.Sys().(*syscall.Stat_t).Uid))
}

// value is the [secrets] value as it is.
func (s *search) value() string { return string(s.needles[1].shapes[0]) }
