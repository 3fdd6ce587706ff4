package site

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDirectivesAllowed(t *testing.T) {
	for system, list := range map[string][]string{
		slurm: {
			"--constraint=a100", "-C a100", "-Ca100", "--exclusive", "--exclusive=user", "-s", "--mail-type=END,FAIL", "--mail-user a@b.org", "--reservation=r",
			"--gpu-bind=closest", "--gpu-freq=high", "--mem-bind=local", "--exclude=n[1-4]", "-x n1", "-w n1", "--nodelist=n1", "--hint=nomultithread",
			"--dependency=singleton", "-d singleton", "--licenses=foo:2", "-L foo", "--nice=100", "--switches=1@10:00", "--begin=now+1hour", "--tmp=10G",
			"--threads-per-core=1", "--sockets-per-node=2", "--contiguous", "--no-kill", "--hold", "-H", "--wait-all-nodes=1", "--profile=energy",
		},
		pbs: {"-l software=1", "-lsoftware=1", "-l pmem=1gb,pvmem=2gb", "-m abe", "-M a@b.org", "-p 10", "-a 2300", "-W group_list=g1", "-W depend=afterok:1", "-h", "-c n"},
	} {
		for _, d := range list {
			why, _ := badDirective(system, d)
			assert.Empty(t, why, "%s %q", system, d)
		}
	}
}

func TestDirectivesRefused(t *testing.T) {
	ours := "is set by openai4s itself"
	for _, tc := range []struct{ system, directive, why, hint string }{
		// What openai4s sets, in every spelling that the submit command takes.
		{slurm, "--job-name=x", ours, ""}, {slurm, "-J x", ours, ""}, {slurm, "-Jx", ours, ""}, {slurm, "--job-na=x", ours, ""},
		{slurm, "--output=x", ours, ""}, {slurm, "-o x", ours, ""}, {slurm, "--error=x", ours, ""}, {slurm, "-e x", ours, ""},
		{slurm, "--input=x", ours, ""}, {slurm, "-i x", ours, ""}, {slurm, "--chdir=/", ours, ""}, {slurm, "-D /", ours, ""},
		{slurm, "--nodes=4", ours, "max_nodes"}, {slurm, "-N 4", ours, ""}, {slurm, "-N4", ours, ""}, {slurm, "--ntasks=4", ours, ""}, {slurm, "-n 4", ours, ""},
		{slurm, "--ntasks-per-node=4", ours, "max_ranks_per_node"}, {slurm, "--time=1", ours, "walltime"}, {slurm, "-t 1", ours, ""},
		{slurm, "--time-min=1", "unseen", ""}, {slurm, "--partition=gpu", ours, "partition"}, {slurm, "-p gpu", ours, ""}, {slurm, "-pgpu", ours, ""},
		{slurm, "--part=gpu", ours, ""}, {slurm, "--partition gpu", ours, ""}, {slurm, "--qos=x", ours, "qos"}, {slurm, "-q x", ours, ""},
		{slurm, "--account=x", ours, "account"}, {slurm, "-A x", ours, ""}, {slurm, "--gres=gpu:1", ours, "gpus_per_node"}, {slurm, "--gpus=1", ours, ""},
		{slurm, "-G 1", ours, ""}, {slurm, "--gpus-per-node=1", ours, ""}, {slurm, "--gpus-per-task=1", ours, ""}, {slurm, "--tres-per-task=cpu:1", ours, ""},
		{slurm, "--mem=1G", ours, "memory_per_node"}, {slurm, "--mem-per-cpu=1G", ours, ""}, {slurm, "--cpus-per-task=2", ours, "cpus_per_rank"}, {slurm, "-c 2", ours, ""},
		{slurm, "--signal=TERM@60", ours, ""}, {slurm, "--requeue", ours, ""}, {slurm, "--no-requeue", ours, ""}, {slurm, "--open-mode=append", ours, ""},
		{slurm, "--comment=x", ours, ""}, {slurm, "--parsable", ours, ""},
		{slurm, "-sp gpu", ours, ""}, {slurm, "-Hsq x", ours, ""},
		// What makes another kind of submission of it.
		{slurm, "--wait", "from returning", "leave"}, {slurm, "-W", "from returning", ""}, {slurm, "--test-only", "doesn't submit", ""},
		{slurm, "--array=1-4", "many jobs", ""}, {slurm, "-a 1-4", "many jobs", ""}, {slurm, "--arr=1", "many jobs", ""},
		{slurm, "--clusters=c2", "another cluster", ""}, {slurm, "-M c2", "another cluster", ""}, {slurm, "--clus=c2", "another cluster", ""},
		{slurm, "--export=ALL", "environment", ""}, {slurm, "--exp=ALL", "environment", ""}, {slurm, "--export-file=x", "environment", ""},
		{slurm, "--get-user-env", "login shell", ""}, {slurm, "--wrap=id", "replaces the script", ""}, {slurm, "--wrap id", "replaces the script", ""},
		{slurm, "hetjob", "is not an option", ""}, {slurm, "--constraint=x : --constraint=y", "more than one option", ""},
		{slurm, "-C :", "several parts", ""}, {slurm, "--exclusive hetjob", "several parts", ""}, {slurm, "--uid=0", "another user", ""},
		{slurm, "--overcommit", "which rank", ""}, {slurm, "-O", "which rank", ""}, {slurm, "-m cyclic", "which rank", ""},
		// Forms.
		{slurm, "", "is not an option", "--constraint=a100"}, {slurm, "constraint=a100", "is not an option", ""}, {slurm, "#SBATCH --exclusive", "is not an option", ""},
		{slurm, "--", "is not an option", ""}, {slurm, "-", "is not an option", ""}, {slurm, "--exclusive # why", "comment sign", ""},
		{slurm, "--exclusive\n--wrap=id", "line end", ""}, {slurm, "--exclusive\rx", "line end", ""}, {slurm, "--constraint=a100 --exclusive", "more than one", "one option an entry"},
		{slurm, "--exclusive -p gpu", "more than one", ""}, {slurm, "--constraint 'a' \"-p\" gpu", "more than one", ""}, {slurm, "-s x", "more than one", ""},
		{pbs, "-N x", ours, ""}, {pbs, "-Nx", ours, ""}, {pbs, "-o x", ours, ""}, {pbs, "-e x", ours, ""}, {pbs, "-j oe", ours, ""}, {pbs, "-k oed", ours, ""},
		{pbs, "-q workq", ours, "queue"}, {pbs, "-r y", ours, ""}, {pbs, "-A x", ours, "account"}, {pbs, "-P x", ours, "project"}, {pbs, "-S /bin/sh", ours, ""},
		{pbs, "-l select=2", "select is set", "select_extra"}, {pbs, "-lselect=2", "select is set", ""}, {pbs, "-l software=1,place=pack", "place is set", "place"},
		{pbs, "-l walltime=1", "walltime is set", "walltime"}, {pbs, "-l nodes=2", "nodes is set", ""}, {pbs, "-l ncpus=2", "ncpus is set", ""}, {pbs, "-l WALLTIME=1", "is set", ""},
		{pbs, "-W umask=0", "umask is set", ""}, {pbs, "-Wumask=0", "umask is set", ""}, {pbs, "-W group_list=g,block=true", "block is set", ""},
		{pbs, "-hq x", ours, "queue"}, {pbs, "-J 1-4", "many jobs", ""}, {pbs, "-V", "environment", ""}, {pbs, "-v A=1", "environment", ""},
		{pbs, "-I", "interactive", ""}, {pbs, "-z", "hides", ""}, {pbs, "-C x", "script is read", ""}, {pbs, "-R oe", "removes", ""}, {pbs, "-f", "returns", ""},
		{pbs, "--version", "no option of a job", "short options"}, {pbs, "-l software=1 -q x", "more than one", ""},
		{local, "-x", "no directives", "leave"},
	} {
		t.Run(tc.system+" "+tc.directive, func(t *testing.T) {
			why, hint := badDirective(tc.system, tc.directive)
			require.NotEmpty(t, why)
			assert.Contains(t, why, tc.why)
			assert.Contains(t, hint, tc.hint)
		})
	}
}

func TestCase18ASecondSelectIsRefused(t *testing.T) {
	_, err := load(write(t, pbsHead+profileP+"directives = [\"-l select=1:ncpus=2\"]\n"), env(), "")
	e := asError(t, err)
	assert.Equal(t, "-l select is set by openai4s itself", e.Msg)
	assert.Equal(t, "use the profile's key select_extra", e.Hint)
}
