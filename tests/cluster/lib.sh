# Shared by up.sh, down.sh and kill-node.sh; sourced, never run.

# alive PIDFILE NAME: the process of that pid file is up and its program is called NAME.
alive() {
	local pid
	pid=$(cat "$1" 2>/dev/null) && [[ -n $pid ]] && [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == */"$2"* ]]
}

# await SECONDS WHAT COMMAND...: runs the command until it succeeds.
await() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || die "gave up waiting for $what (logs: $state/log)"
		sleep 0.05
	done
}

# steps STATE_DIR NODE: the processes of all job steps on a node, slurmstepds first; NODE may be a pattern. A slurmstepd
# keeps its node's log open to the end; the socket it listens on is closed earlier.
steps() {
	local p fd log stepds=()
	for p in /proc/[0-9]*; do
		[[ $(readlink "$p/exe" 2>/dev/null) == */slurmstepd* ]] || continue
		for fd in "$p"/fd/*; do
			log=$(readlink "$fd" 2>/dev/null) || continue
			# shellcheck disable=SC2053 # NODE is a pattern
			if [[ ${log% (deleted)} == "$1"/log/$2.log ]]; then
				stepds+=("${p#/proc/}")
				break
			fi
		done
	done
	tree ${stepds[@]+"${stepds[@]}"} | sort -u
}

# tree PID...: these processes and all below them.
tree() {
	local p c
	for p; do
		echo "$p"
		for c in $(cat /proc/"$p"/task/*/children 2>/dev/null); do tree "$c"; done
	done
}

die() {
	echo "${0##*/}: $*" >&2
	exit 1
}
