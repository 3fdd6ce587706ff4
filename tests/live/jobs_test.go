//go:build live

package live_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/rig"
)

// run runs a job to its good end and returns its document and its output.
func run(t *testing.T, alice *rig.User, job string, flags ...string) (rig.Doc, string) {
	t.Helper()
	ran := alice.TrySubmit(t, job, append([]string{"--wait", "--json"}, flags...)...)
	require.Zero(t, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
	w := ran.Doc(t)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	return w, alice.Read(t, w.Text("output"))
}

// TestCase45RosterIsTheGateways: 8 ranks on 4 nodes find their places and each other with nothing of Slurm on PATH.
func TestCase45RosterIsTheGateways(t *testing.T) {
	t.Parallel()
	alice := newRig(t).Alice(t)
	_, output := run(t, alice, rig.Shell(4, `
echo "rank $RANK=$OPENAI4S_RANK of $WORLD_SIZE=$OPENAI4S_WORLD_SIZE local $LOCAL_RANK=$OPENAI4S_LOCAL_RANK node $OPENAI4S_NODE_RANK $SLURMD_NODENAME hosts $OPENAI4S_HOSTS" $(cat $OPENAI4S_HOSTFILE)`,
		"ranks_per_node = 2\n[env]\nPATH = \"/nowhere:/usr/bin:/bin\"\n"))
	for rank := range 8 {
		node := rank / 2
		require.Contains(t, output, fmt.Sprintf("rank %d=%d of 8=8 local %d=%d node %d n%d hosts n[1-4] n1 n2 n3 n4\n", rank, rank, rank%2, rank%2, node, node+1))
	}
}

// TestCase48PortsAreFree: two gangs on the same nodes get different ports for their ranks to meet at.
func TestCase48PortsAreFree(t *testing.T) {
	t.Parallel()
	alice := newRig(t).Alice(t)
	listen := rig.Shell(2, `test $RANK != 0 || timeout 60 python3 -c "
import os, socket, time
s = socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))
print('port', os.environ['MASTER_PORT'], flush=True)
there = os.environ['OPENAI4S_WORKLOAD']
open(os.environ['MEETING'] + '/' + there, 'w')
while len(os.listdir(os.environ['MEETING'])) < 2: time.sleep(0.1)
"`, fmt.Sprintf("[env]\nMEETING = %q\n", filepath.Dir(alice.Write(t, "meeting/.x", ""))))
	require.Zero(t, alice.Exec(t, "rm", "meeting/.x").Code)
	first, second := alice.Submit(t, listen), alice.Submit(t, listen)
	ports := map[string]bool{}
	for _, id := range []string{first, second} {
		w := alice.AwaitEnd(t, id)
		require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
		ports[alice.Read(t, w.Text("output"))] = true
	}
	require.Len(t, ports, 2)
}

const twoProfiles = `
[profiles.default]
partition = "main"
max_nodes = 4
[profiles.quick]
partition = "short"
max_nodes = 1
walltime = "2m"
directives = ["--nice=7", "--constraint=lab"]
prologue = ["FROM_PROLOGUE=yes; export FROM_PROLOGUE"]
`

// TestProfile: a profile is a name of the site's, and what it means to Slurm is what Slurm gets.
func TestProfile(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Profiles: twoProfiles})
	alice := r.Alice(t)
	w, output := run(t, alice, rig.Shell(1, `echo "prologue $FROM_PROLOGUE, setup $FROM_SETUP"`, `setup = ["export FROM_SETUP=$FROM_PROLOGUE-too"]`), "--profile", "quick")
	require.Equal(t, "quick", w.Text("profile"))
	require.Equal(t, "prologue yes, setup yes-too\n", output)
	theirs := controller(t, shared, w.Text("job", "id"))
	require.Equal(t, "short", theirs["Partition"])
	require.Equal(t, "00:02:00", theirs["TimeLimit"])
	require.Equal(t, "7", theirs["Nice"])
	require.Equal(t, "lab", theirs["Features"])

	unknown := alice.TrySubmit(t, rig.Shell(1, "true", ""), "--profile", "huge")
	require.Equal(t, 81, unknown.Code)
	for _, word := range []string{"huge", "default", "quick"} {
		require.Contains(t, unknown.Stderr, word, "the ones there are")
	}
}

// TestCase20StylesOfGPUs: both ways to ask for GPUs give a job its own.
func TestCase20StylesOfGPUs(t *testing.T) {
	t.Parallel()
	for _, style := range []string{"gres", "gpus"} {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{Cluster: shared, Profiles: fmt.Sprintf("[profiles.gpu]\npartition = \"main\"\nmax_nodes = 4\ngpus_per_node = 4\ngpu_style = %q\n", style)})
			w, output := run(t, r.Alice(t), rig.Shell(2, `echo "rank $RANK: ${SLURM_GPUS_ON_NODE:-none}, $CUDA_VISIBLE_DEVICES"`, "[resources]\ngpus_per_node = 2\n"))
			for rank := range 2 {
				require.Regexp(t, fmt.Sprintf(`(?m)^rank %d: 2, \d,\d$`, rank), output)
			}
			require.Contains(t, controller(t, shared, w.Text("job", "id"))["TresPerNode"], "gpu:2")
			require.Equal(t, 81, r.Alice(t).TrySubmit(t, rig.Shell(1, "true", "[resources]\ngpus_per_node = 5\n")).Code, "more than a node has")
		})
	}
}

// TestCase13FromInsideAnAllocation: a job that another job submits is a job like any other.
func TestCase13FromInsideAnAllocation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alice := r.Alice(t)
	inner := alice.JobFile(t, rig.Shell(2, `echo "inner $SLURM_JOB_ID rank $RANK has ${SLURM_CPUS_PER_TASK:-1} cpus, ${SLURM_MEM_PER_CPU:-no} memory, ${OUTER_ONLY:-nothing}"`, ""))
	outer := alice.Write(t, "outer.sh", fmt.Sprintf("#!/bin/sh\nexport OUTER_ONLY=leaked\necho outer $SLURM_JOB_ID\nexec srun --ntasks=1 %s submit --wait %s\n", r.Program("openai4s"), inner))
	ran := alice.Exec(t, "sbatch", "--wait", "--nodes=1", "--ntasks=1", "--cpus-per-task=2", "--mem-per-cpu=96", "--output="+filepath.Join(alice.Home, "outer.out"), outer)
	require.Zero(t, ran.Code, "%s\n%s", ran.Stderr, alice.Read(t, "outer.out"))
	require.Contains(t, alice.Read(t, "outer.out"), "COMPLETED")
	w := alice.AwaitOnlyEnd(t)
	require.Equal(t, "COMPLETED", w.Phase())
	output, id := alice.Read(t, w.Text("output")), w.Text("job", "id")
	for rank := range 2 {
		require.Contains(t, output, fmt.Sprintf("inner %s rank %d has 1 cpus, 64 memory, nothing\n", id, rank))
	}
	require.False(t, strings.Contains(alice.Read(t, "outer.out"), "outer "+id+"\n"), "a job of its own")
}

// TestCase15CPUsOfARank: the step has as many CPUs as its ranks want, and each rank may use its own.
func TestCase15CPUsOfARank(t *testing.T) {
	t.Parallel()
	alice := newRig(t).Alice(t)
	id := alice.Submit(t, rig.Shell(2, `echo "$SLURM_CPUS_PER_TASK"; until test -e ../release; do sleep 0.2; done`,
		"ranks_per_node = 2\n[resources]\ncpus_per_rank = 3\n"))
	job := alice.AwaitPhase(t, id, "ACTIVE").Text("job", "id")
	step := shared.Slurm(t, "scontrol", "show", "step", "--oneliner", job+".0")
	require.Contains(t, step, " CPUs=12 ", step)
	require.Contains(t, step, " Tasks=4 ", step)
	// A cluster that binds ranks to CPUs goes by what srun itself was told; accounting keeps its words.
	rig.Await(t, rig.Patience, "sacct to know srun's words", func() bool {
		return strings.Contains(shared.Slurm(t, "sacct", "--noheader", "--parsable2", "--jobs="+job+".0", "--format=SubmitLine"), " --cpus-per-task=3 ")
	})
	alice.Write(t, "release", "")
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Equal(t, strings.Repeat("3\n", 4), alice.Read(t, w.Text("output")))
}

// TestCase14RanksHaveAnEnvironment: --export=NONE keeps the submitter's shell out, and the ranks have a login's all the
// same.
func TestCase14RanksHaveAnEnvironment(t *testing.T) {
	t.Parallel()
	alice := newRig(t).Alice(t)
	alice.Env = []string{"OF_THE_SUBMITTERS_SHELL=here"}
	w, output := run(t, alice, rig.Shell(4, `echo "$(id -un) ${PATH:+path} ${HOME:+home} ${OF_THE_SUBMITTERS_SHELL:-clean} ${SLURM_EXPORT_ENV:-unset} $SLURM_CPUS_PER_TASK"`,
		"[resources]\ncpus_per_rank = 2\n"))
	require.Equal(t, strings.Repeat(alice.Name+" path home clean unset 2\n", 4), output)
	require.Equal(t, "8", controller(t, shared, w.Text("job", "id"))["NumCPUs"])
}

// TestCase19Walltime: what is asked for is what Slurm understands.
func TestCase19Walltime(t *testing.T) {
	t.Parallel()
	alice := newRig(t).Alice(t)
	for walltime, want := range map[string]string{"90s": "00:02:00", "59m": "00:59:00", "1h": "01:00:00"} {
		t.Run(walltime, func(t *testing.T) {
			w, _ := run(t, alice, rig.Shell(1, "true", fmt.Sprintf("walltime = %q", walltime)))
			require.Equal(t, want, controller(t, shared, w.Text("job", "id"))["TimeLimit"])
		})
	}
}
