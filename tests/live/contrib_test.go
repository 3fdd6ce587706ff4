//go:build live

package live_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

func contribFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "contrib", "slurm", name))
	require.NoError(t, err)
	return string(text)
}

// TestContribOnSlurm: the submit plugin refuses what would publish a credential, and nothing else; prolog and epilog
// make a job's folder and take it away.
func TestContribOnSlurm(t *testing.T) {
	t.Parallel()
	base := filepath.Join("/tmp", "o4s-node-"+filepath.Base(t.TempDir()))
	require.NoError(t, os.RemoveAll(base))
	t.Cleanup(func() { os.RemoveAll(base) })
	elsewhere := func(name string) string {
		text := contribFile(t, name)
		require.Contains(t, text, "base=/run/openai4s\n")
		return strings.Replace(text, "base=/run/openai4s\n", "base="+base+"\n", 1)
	}
	own := cluster.Up(t, cluster.Options{Nodes: 2, Accounting: true,
		Files: map[string]string{"job_submit.lua": contribFile(t, "job_submit.lua"), "prolog.sh": elsewhere("prolog.sh"), "epilog.sh": elsewhere("epilog.sh")},
		Set:   []string{"JobSubmitPlugins=lua", "Prolog=@/etc/prolog.sh", "Epilog=@/etc/epilog.sh"}})
	r := rig.New(t, rig.Options{Cluster: own})
	alice := r.Alice(t)
	sbatch := func(env string, args ...string) rig.Ran {
		alice.Env = nil
		if env != "" {
			alice.Env = []string{env}
		}
		defer func() { alice.Env = nil }()
		return alice.Exec(t, "sbatch", append([]string{"--parsable", "--output=/dev/null"}, args...)...)
	}
	plain := alice.Write(t, "plain.sh", "#!/bin/sh\ntrue\n")
	speaking := alice.Write(t, "speaking.sh", "#!/bin/sh\n#SBATCH --export=MODE=x,MY_TOKEN=hunter2\ntrue\n")
	harmless := alice.Write(t, "harmless.sh", "#!/bin/sh\n#SBATCH --export=MODE=x\n# --export=MY_TOKEN=x in a comment\ntrue\n")

	for name, ran := range map[string]rig.Ran{
		"all of an environment that has one": sbatch("HF_TOKEN=hunter2", plain),
		"named on the command line":          sbatch("", "--export=HF_TOKEN=hunter2", plain),
		"in the script":                      sbatch("", speaking),
	} {
		require.Equal(t, 1, ran.Code, "%s: %s", name, ran.Stderr)
		require.Contains(t, ran.Stderr, "_TOKEN would be kept by Slurm", name)
		require.Contains(t, ran.Stderr, "--export=NONE", name)
		require.NotContains(t, ran.Stderr, "hunter2", name)
		require.Empty(t, ran.Stdout, name)
	}
	for name, ran := range map[string]rig.Ran{
		"an environment without":             sbatch("MODE=x", plain),
		"none of an environment with one":    sbatch("HF_TOKEN=hunter2", "--export=NONE", plain),
		"a harmless list":                    sbatch("", harmless),
		"an empty one":                       sbatch("HF_TOKEN=", plain),
		"srun, whose environment isn't kept": alice.Exec(t, "env", "HF_TOKEN=hunter2", "srun", "--nodes=1", "true"),
	} {
		require.Zero(t, ran.Code, "%s: %s", name, ran.Stderr)
	}

	// Ours pass, whatever is in the submitter's environment.
	alice.Env = []string{"HF_TOKEN=hunter2"}
	id := alice.Submit(t, rig.Shell(2, `mine=`+base+`/$SLURM_JOB_ID; ls -ld "$mine"; echo kept >"$mine/file-$RANK"; echo "found $(ls "$mine" | wc -l)"`, ""))
	alice.Env = nil
	w := alice.AwaitPhase(t, id, "COMPLETED")
	text := alice.Read(t, w.Text("output"))
	require.Contains(t, text, "drwx------")
	require.Contains(t, text, alice.Name)
	require.Contains(t, text, "found ")
	rig.Await(t, rig.Patience, "the epilog to remove the folder", func() bool {
		_, err := os.Stat(filepath.Join(base, w.Text("job", "id")))
		return os.IsNotExist(err)
	})
	require.NotContains(t, own.Slurm(t, "sinfo", "--noheader", "--format=%T"), "drain")
}
