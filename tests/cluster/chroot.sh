#!/bin/bash
# Another version of Slurm on this machine: a Debian release in a folder, with Slurm in it.
#
#   chroot.sh SUITE DIR [COMMAND...]     trixie has 24.11, sid the newest
#   chroot.sh --unbind DIR               takes the mounts out again
#   chroot.sh --remove DIR               takes them out and removes DIR
#
# Makes DIR on first use (debootstrap; a few minutes), puts these scripts to DIR/cluster, and runs COMMAND inside, as
# root, with /proc, /dev and /sys bound. A cluster there needs ports of its own:
#
#   chroot.sh trixie /var/tmp/trixie /cluster/up.sh --port 21000 --accounting /slurm
#   chroot.sh trixie /var/tmp/trixie /cluster/down.sh --purge /slurm
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/lib.sh"
[[ $(id -u) == 0 ]] || die "needs root"

# unbind takes the mounts out of the folder, or removing it would reach through them.
unbind() {
	local d
	for d in proc dev sys; do
		if mountpoint -q "$1/$d"; then umount --lazy "$1/$d" || die "$1/$d is still mounted"; fi
	done
}
if [[ ${1:-} == --remove || ${1:-} == --unbind ]]; then
	dir=$(cd "${2:?usage: chroot.sh $1 DIR}" && pwd -P)
	[[ -e $dir/cluster/up.sh ]] || die "$dir was not made by this script"
	unbind "$dir"
	[[ $1 == --unbind ]] || rm -rf --one-file-system "$dir"
	exit
fi
(($# >= 2)) || die "usage: chroot.sh SUITE DIR [COMMAND...]"
suite=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd -P)
shift 2

packages=slurmctld,slurmd,slurm-client,munge,slurmdbd,slurm-wlm-mysql-plugin,mariadb-server,python3,acl,procps,iproute2
if [[ ! -e $dir/cluster/complete ]]; then
	command -v debootstrap >/dev/null || die "debootstrap is not installed"
	mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -1) || true
	debootstrap --variant=minbase --include="$packages" "$suite" "$dir" ${mirror:+"$mirror"} >"$dir.log" 2>&1 ||
		die "debootstrap $suite failed: see $dir.log"
	mkdir -p "$dir/cluster"
	: >"$dir/cluster/complete"
fi
for d in proc dev sys; do mountpoint -q "$dir/$d" || mount --bind "/$d" "$dir/$d"; done
cp /etc/hosts "$dir/etc/hosts"
cp "$here"/*.sh "$dir/cluster/"
(($#)) || exit 0
exec chroot "$dir" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C TZ=UTC "$@"
