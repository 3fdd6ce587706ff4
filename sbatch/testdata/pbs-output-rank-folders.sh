# arguments: -f -N openai4s-fold-ba9876543210 -l 'select=2:ncpus=1:mpiprocs=1:ompthreads=1' -l 'place=scatter' -l 'walltime=01:00:00' -j oe -koed -o /home/u/.openai4s/run/wl_0123456789ab/batch-ba9876543210.out -r n -m n -S /bin/sh -W 'umask=022'
#!/bin/sh

# Workload wl_0123456789ab, allocation alloc_ba9876543210; rendered by openai4s.
set -f
RUN=/home/u/.openai4s/run/wl_0123456789ab
AGENT=/opt/openai4s/1.4/bin/openai4s-agent
ALLOCATION=alloc_ba9876543210
JOBID="${PBS_JOBID:-}"

fail() {
	printf 'openai4s: %s\n' "$2" >&2
	exit "$1"
}

# present TEST PATH SECONDS waits for what a shared file system shows late; listing its folder makes it look again.
present() {
	left=$3
	until test "$1" "$2"; do
		test "$left" -gt 0 || return 1
		ls "${2%/*}/" >/dev/null 2>&1
		sleep 1
		left=$((left - 1))
	done
}

# claim LINK TARGET makes a link and reads it back, as a repeated call over NFS may deny its own success.
# 0: it is ours. 1: it is another's, named by $held. 2: neither, for the reason in $held.
claim() {
	why=$(ln -sn -- "$2" "$1" 2>&1)
	held=$(readlink "$1" 2>/dev/null) || {
		held=$why
		return 2
	}
	test "$held" = "$2"
}

test -n "$JOBID" || fail 10 "the scheduler gave this script no job id"
present -d "$RUN" 60 || fail 10 "$RUN is not there on $(uname -n): runtime_dir has to be on a file system that all nodes share"

# One job holds an allocation.
claim "$RUN/job-$ALLOCATION" "$JOBID"
case $? in
0) ;;
1) fail 10 "another job, $held, holds allocation $ALLOCATION; this one, $JOBID, ends without having started anything" ;;
*) fail 10 "job $JOBID can't claim allocation $ALLOCATION in $RUN on $(uname -n): $held" ;;
esac

present -x "$AGENT" 10 || fail 11 "the agent $AGENT is not there or can't be executed on $(uname -n)"

# Each start of the job takes the next epoch. What tells one start from another: host, boot, process, start time.
BOOT=-
{ read -r BOOT </proc/sys/kernel/random/boot_id; } 2>/dev/null
STAT=
{ read -r STAT <"/proc/$$/stat"; } 2>/dev/null
set -- ${STAT##*) }
UNIQUE="$(uname -n):$BOOT:$$:${20:-$(date +%s)}"
N=0
while test "$N" -le 0; do
	claim "$RUN/start-$N" "$JOBID:$UNIQUE"
	case $? in
	0) break ;;
	1) N=$((N + 1)) ;;
	*) fail 10 "job $JOBID can't claim epoch $N in $RUN on $(uname -n): $held" ;;
	esac
done
test "$N" -le 0 || fail 10 "job $JOBID was started more often than its restarts allow: epochs 0 to 0 are used up"

OPENAI4S_BUNDLE="$RUN/gang-$N.bundle"
OPENAI4S_EPOCH=$N
OPENAI4S_JOB_ID=$JOBID
export OPENAI4S_BUNDLE OPENAI4S_EPOCH OPENAI4S_JOB_ID
OPENAI4S_DEADLINE=$(($(date +%s) + 3600))
export OPENAI4S_DEADLINE
present -f "$OPENAI4S_BUNDLE" 120 || fail 12 "$OPENAI4S_BUNDLE is not there on $(uname -n): no rank can register"
RSH=$(command -v pbs_tmrsh) ||
	RSH=$(sed -n 's/^PBS_EXEC=//p' "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null)/bin/pbs_tmrsh
test -x "$RSH" || fail 11 "pbs_tmrsh is neither in PATH nor in the PBS_EXEC of pbs.conf on $(uname -n)"
test -r "${PBS_NODEFILE:-}" || fail 11 "PBS gave this script no node file"

# A cancelled job's script gets TERM as well as its ranks: it has to outlive them to tell their end.
TOLD=
trap 'TOLD=1' TERM INT
"$AGENT" launch --nodes=2 --ranks-per-node=1 --grace=1m0s --output=/home/u/fold/'it'\''s/'%r/"$JOBID".txt --remote="$RSH" --node-file="$PBS_NODEFILE" --exit-file="$RUN/exit-$N" -- \
	"$AGENT" --bundle "$OPENAI4S_BUNDLE" --epoch "$N" --job "$JOBID" --deadline "$OPENAI4S_DEADLINE" &
LAUNCHER=$!
RC=
while :; do
	TOLD=
	wait "$LAUNCHER"
	CODE=$?
	# 127 to a second wait: the first had the code, and the signal came after it.
	if test -z "$RC" || test "$CODE" -ne 127; then
		RC=$CODE
	fi
	test -n "$TOLD" || break
done

# The gang's own code, where an agent left it, says more than the launcher's.
ls "$RUN/" >/dev/null 2>&1
CODE=
{ read -r CODE <"$RUN/exit-$N"; } 2>/dev/null
case $CODE in
[0-9] | [1-9][0-9] | 1[0-9][0-9] | 2[0-4][0-9] | 25[0-5]) RC=$CODE ;;
esac
exit "$RC"
