#!/bin/bash
# The crash of one node: SIGKILL to its slurmd, its slurmstepds and their tasks. up.sh with the same arguments
# brings the node back.
#   kill-node.sh STATE_DIR NODE
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
[[ $# == 2 ]] || die "usage: kill-node.sh STATE_DIR NODE"
state=$(cd "$1" && pwd -P) node=$2
alive "$state/run/$node.pid" slurmd || die "$node is down already"

mapfile -t pids < <(steps "$state" "$node")
slurmd=$(cat "$state/run/$node.pid")
kill -KILL "$slurmd" ${pids[@]+"${pids[@]}"} 2>/dev/null || true
echo "kill-node: killed slurmd $slurmd of $node and ${#pids[@]} processes of its steps" >&2
