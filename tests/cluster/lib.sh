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

die() {
	echo "${0##*/}: $*" >&2
	exit 1
}
