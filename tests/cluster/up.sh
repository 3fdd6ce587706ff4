#!/bin/bash
# Starts a real Slurm cluster on this one machine, out of Debian's packages (install.sh): one slurmctld, one
# slurmd a node, a munged of its own and, with --accounting, slurmdbd and mariadbd of its own.
#
#   up.sh [OPTION]... STATE_DIR
#
#   --nodes N          how many nodes, n1 to nN (4)
#   --cpus N           pretended CPUs of each node (4)
#   --gpus K           pretended GPUs of each node (0)
#   --gpu-type NAME    give them a type
#   --accounting       finished jobs are kept
#   --store FLAGS      AccountingStoreFlags, such as job_comment,job_script,job_env (none: no comment is kept)
#   --cgroup           memory limits that bite (cgroup v1)
#   --users A,B,...    unprivileged users, made where missing (o4s-alice,o4s-bob,o4s-gw)
#   --port P           first of the ports: slurmctld P, slurmdbd P+1, mariadbd P+2, slurmd from P+101 (17000)
#   --set Key=Value    any line of slurm.conf; an empty value takes one out; may be repeated
#   --cluster NAME     ClusterName (lab)
#
# Needs root. Idempotent: a daemon that is up is left as it is. The only line on stdout is
# "export SLURM_CONF=..."; everything else goes to stderr. STATE_DIR must be reachable by every user who
# submits jobs. Every daemon listens on loopback only; the distribution's own services are never touched.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"

nodes=4 cpus=4 gpus=0 gpu_type= accounting= store= cgroup= users=o4s-alice,o4s-bob,o4s-gw port=17000 overrides=() cluster=lab
while [[ ${1:-} == --* ]]; do
	case $1 in
	--accounting) accounting=1 ;;
	--cgroup) cgroup=1 ;;
	--nodes | --cpus | --gpus | --gpu-type | --store | --users | --port | --cluster)
		(($# > 1)) || die "$1 wants a value"
		name=${1#--} name=${name//-/_}
		printf -v "$name" %s "$2"
		shift
		;;
	--set)
		[[ ${2:-} == ?*=* ]] || die "--set wants Key=Value, not ${2:-nothing}"
		overrides+=("$2")
		shift
		;;
	*) die "unknown option $1" ;;
	esac
	shift
done
[[ $# == 1 && $nodes =~ ^[1-9][0-9]*$ && $cpus =~ ^[1-9][0-9]*$ && $gpus =~ ^[0-9]+$ && $port =~ ^[1-9][0-9]*$ ]] || die "usage: up.sh [OPTION]... STATE_DIR (read its first lines)"
[[ $(id -u) == 0 ]] || die "needs root"
# The daemons look at argv[0]: they must be called slurmctld and slurmd, not by the names behind Debian's alternatives.
for d in slurmctld slurmd sbatch munge; do
	command -v "$d" >/dev/null || die "$d is not installed: run install.sh first"
	[[ $(readlink -f "$(command -v "$d")") != *emulator ]] || die "$d is the emulator: remove the package slurm-wlm-emulator"
done

mkdir -p "$1"
state=$(cd "$1" && pwd -P)
conf=$state/etc/slurm.conf
export SLURM_CONF=$conf
chmod 755 "$state"
install -d -m 755 "$state"/{etc,log,run,spool}
install -d -m 755 -o munge -g munge "$state/munge"
install -d -m 755 -o slurm -g slurm "$state/ctld" "$state/log/ctld" "$state/run/ctld"

for u in ${users//,/ }; do
	getent passwd "$u" >/dev/null || useradd --create-home --user-group --shell /bin/bash "$u"
done

# --- munge: a key, a socket and a daemon of its own ---
munge=$state/munge
if ! alive "$munge/munged.pid" munged; then
	if [[ ! -e $munge/key ]]; then
		(umask 077 && head -c 128 /dev/urandom >"$munge/key")
		chown munge:munge "$munge/key"
	fi
	runuser -u munge -- "$(command -v munged || echo /usr/sbin/munged)" --key-file="$munge/key" --socket="$munge/socket" \
		--pid-file="$munge/munged.pid" --log-file="$munge/munged.log" --seed-file="$munge/seed"
fi
await 10 munged munge --socket="$munge/socket" --no-input --output=/dev/null

# --- slurm.conf ---
hostname=$(hostname -s)
declare -A set=(
	[ClusterName]=$cluster
	[SlurmctldHost]="$hostname(127.0.0.1)"
	[SlurmctldPort]=$port
	[SlurmUser]=slurm
	[SlurmdUser]=root
	[AuthType]=auth/munge
	[AuthInfo]="socket=$munge/socket"
	[StateSaveLocation]=$state/ctld
	[SlurmdSpoolDir]=$state/spool/%n
	[SlurmctldPidFile]=$state/run/ctld/slurmctld.pid
	[SlurmdPidFile]=$state/run/%n.pid
	[SlurmctldLogFile]=$state/log/ctld/slurmctld.log
	[SlurmdLogFile]=$state/log/%n.log
	[ProctrackType]=proctrack/linuxproc
	[TaskPlugin]=task/none
	[SelectType]=select/cons_tres
	[SelectTypeParameters]=CR_Core_Memory
	[SlurmdParameters]=config_overrides
	[CommunicationParameters]=NoInAddrAny,NoCtldInAddrAny
	[ReturnToService]=2
	[SlurmdTimeout]=30
	[KillWait]=5
	[JobAcctGatherType]=jobacct_gather/linux
	[JobAcctGatherFrequency]=task=1
	[AccountingStorageType]=accounting_storage/none
	[DefMemPerCPU]=64
	[SchedulerParameters]=bf_interval=2 # het jobs start from the backfill loop only, by default every 30 s
)
# Slurm 23 and later look for cgroups unless told not to; 22.05 and earlier don't know the word and their slurmd dies of it.
rm -f "$state/etc/cgroup.conf" "$state/etc/gres.conf"
[[ $(slurmd -V) == *" 2"[012].* ]] || echo CgroupPlugin=disabled >"$state/etc/cgroup.conf"
if [[ $cgroup ]]; then
	set[ProctrackType]=proctrack/cgroup
	set[TaskPlugin]=task/cgroup
	printf '%s\n' CgroupPlugin=cgroup/v1 CgroupMountpoint=/sys/fs/cgroup ConstrainRAMSpace=yes >"$state/etc/cgroup.conf"
fi
if ((gpus)); then
	set[GresTypes]=gpu
	for ((i = 0; i < gpus; i++)); do
		[[ -c $state/etc/gpu$i ]] || mknod "$state/etc/gpu$i" c 1 3 # another /dev/null
	done
	last=$((gpus - 1))
	files=$state/etc/gpu0
	((last == 0)) || files="$state/etc/gpu[0-$last]"
	echo "Name=gpu ${gpu_type:+Type=$gpu_type }File=$files" >"$state/etc/gres.conf"
fi
if [[ $accounting ]]; then
	set[AccountingStorageType]=accounting_storage/slurmdbd
	set[AccountingStorageHost]=127.0.0.1
	set[AccountingStoragePort]=$((port + 1))
	set[AccountingStoragePass]=$munge/socket # towards slurmdbd this names the munge socket
	set[AccountingStoreFlags]=$store
	set[AccountingStorageEnforce]=associations,limits,qos
fi
for o in ${overrides[@]+"${overrides[@]}"}; do set[${o%%=*}]=${o#*=}; done
names="n[1-$nodes]" ports="[$((port + 101))-$((port + 100 + nodes))]"
((nodes > 1)) || names=n1 ports=$((port + 101))
gres=
((gpus == 0)) || gres=" Gres=gpu:${gpu_type:+$gpu_type:}$gpus"
{
	for k in "${!set[@]}"; do [[ -z ${set[$k]} ]] || echo "$k=${set[$k]}"; done | sort
	echo "NodeName=$names NodeHostname=$hostname NodeAddr=127.0.0.1 Port=$ports CPUs=$cpus Boards=1 SocketsPerBoard=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=4096 Feature=lab$gres"
	echo "PartitionName=main Nodes=ALL Default=YES MaxTime=60 DefaultTime=10 State=UP"
	echo "PartitionName=short Nodes=n1 MaxTime=2 DefaultTime=1 State=UP"
} >"$conf.new"
mv "$conf.new" "$conf"

[[ -z $accounting ]] || . "$(dirname "$(readlink -f "$0")")/accounting.sh"

# --- slurmctld, then one slurmd a node ---
alive "$state/run/ctld/slurmctld.pid" slurmctld || slurmctld -f "$conf" || die "slurmctld did not start: $state/log/ctld/slurmctld.log"
for ((i = 1; i <= nodes; i++)); do
	alive "$state/run/n$i.pid" slurmd && continue
	install -d -m 755 "$state/spool/n$i"
	slurmd -f "$conf" -N "n$i" || die "slurmd of n$i did not start: $state/log/n$i.log"
done
# A node that was set down by hand stays down, whatever ReturnToService says.
down=$(sinfo --noheader --states=down --format=%N --partition=main)
[[ -z $down ]] || scontrol update NodeName="$down" State=RESUME || true
all_up() { [[ $(sinfo --noheader --Node --partition=main --format=%t | grep -c '^\(idle\|mix\|alloc\|comp\)$') == "$nodes" ]]; }
await $((90 + nodes)) "$nodes nodes" all_up
echo "up: $nodes nodes ($(slurmctld -V)), partitions main and short; stop with down.sh $state" >&2
echo "export SLURM_CONF=$conf"
