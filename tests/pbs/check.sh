#!/bin/sh
# Looks whether the tests of docs/testing-on-pbs.md can run here, and prints what to send with a report. It changes
# nothing and submits nothing.
set -u
bad=0
say() { printf '%-28s %s\n' "$1" "$2"; }
miss() {
	say "$1" "MISSING: $2"
	bad=1
}

for command in qsub qstat qselect qdel pbsnodes; do
	path=$(command -v "$command") && say "$command" "$path" || miss "$command" "not in PATH"
done
command -v go >/dev/null && say go "$(go version)" || miss go "not in PATH"

version=$(qstat --version 2>&1 | head -n 1)
case $version in
*pbs_version*) say version "$version" ;;
*) miss version "needs PBS Pro 19 or OpenPBS, this is: $version" ;;
esac

server=$(qstat -B -f -F json 2>&1)
case $server in
*'"job_history_enable":'*True*) say "job history" on ;;
*) miss "job history" "off, or the server does not answer: some tests look at finished jobs" ;;
esac
say nodes "$(pbsnodes -a -F json 2>/dev/null | grep -c '"state":[[:space:]]*"free"') free"

dir=${OPENAI4S_PBS_DIR:-$HOME}
if test -d "$dir" && test -w "$dir"; then
	say "shared folder" "$dir ($(df -P "$dir" 2>/dev/null | awk 'NR==2 {print $1}'))"
else
	miss "shared folder" "$dir is not there or can't be written; set OPENAI4S_PBS_DIR"
fi
exec_dir=$(sed -n 's/^PBS_EXEC=//p' "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null)
if command -v pbs_tmrsh >/dev/null || test -x "$exec_dir/bin/pbs_tmrsh"; then
	say pbs_tmrsh "here; compute nodes have it too where PBS_EXEC is the same"
else
	say pbs_tmrsh "not on this host; compute nodes need it in PATH or in PBS_EXEC of pbs.conf"
fi
for variable in OPENAI4S_PBS_QUEUE OPENAI4S_PBS_ACCOUNT OPENAI4S_PBS_PROJECT OPENAI4S_PBS_SELECT_EXTRA OPENAI4S_WORKER_ADVERTISE; do
	eval "say \$variable \"\${$variable:-(not set)}\""
done
exit "$bad"
