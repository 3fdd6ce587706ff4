#!/bin/bash
# Stops what up.sh started in STATE_DIR, its jobs first, and nothing else. --purge also removes STATE_DIR.
# The users that up.sh made stay: other clusters of this machine may have jobs of theirs.
#   down.sh [--purge] STATE_DIR
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
purge=
[[ ${1:-} != --purge ]] || { purge=1; shift; }
state=$(cd "${1:?usage: down.sh [--purge] STATE_DIR}" && pwd -P)
[[ -e $state/etc/slurm.conf ]] || die "$state holds no cluster"
export SLURM_CONF=$state/etc/slurm.conf

# stop NAME PIDFILE...: TERM to all of them at once (a slurmd takes seconds to leave), then wait.
stop() {
	local name=$1 f pid pids=() end
	shift
	for f; do if alive "$f" "$name"; then pids+=("$(cat "$f")"); fi; done
	((${#pids[@]})) || return 0
	kill -TERM "${pids[@]}"
	end=$((SECONDS + 20))
	for pid in "${pids[@]}"; do
		while [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == */"$name"* ]]; do
			((SECONDS < end)) || {
				echo "down: $name (pid $pid) ignored TERM, killing it" >&2
				kill -KILL "$pid"
				break
			}
			sleep 0.05
		done
	done
}

# Jobs first: their slurmstepd processes outlive a slurmd.
if alive "$state/run/ctld/slurmctld.pid" slurmctld; then
	timeout 10 squeue --noheader --format=%A | sort -u | timeout 10 xargs --no-run-if-empty scancel 2>/dev/null || true
	for ((i = 0; i < 60; i++)); do
		[[ $(timeout 10 squeue --noheader 2>/dev/null) ]] || break
		sleep 0.25
	done
fi
stop slurmd "$state"/run/n*.pid
# A step that ignores TERM, or whose node was killed, is still there.
mapfile -t pids < <(steps "$state" 'n*')
((${#pids[@]} == 0)) || kill -KILL "${pids[@]}" 2>/dev/null || true
stop slurmctld "$state/run/ctld/slurmctld.pid"
stop slurmdbd "$state/run/ctld/slurmdbd.pid"
stop mariadbd "$state/mysql/mysqld.pid"
stop munged "$state/munge/munged.pid"
if grep -q ^Constrain "$state/etc/cgroup.conf" 2>/dev/null; then
	for f in "$state"/spool/n*; do find /sys/fs/cgroup/*/slurm_"${f##*/}" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
fi
[[ -z $purge ]] || rm -rf "$state"
