#!/bin/bash
# Installs what the tests need beside Slurm, out of Debian's own packages, and makes the unprivileged users that they
# run jobs as. Needs root; does nothing where all is there.
set -euo pipefail
for u in o4s-alice o4s-bob o4s-gw; do
	getent passwd "$u" >/dev/null || useradd --create-home --user-group --shell /bin/bash "$u"
done
packages=(gcc libc6-dev acl procps python3 tcl iproute2)
missing=()
for p in "${packages[@]}"; do
	[[ $(dpkg-query --show --showformat='${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
done
((${#missing[@]})) || exit 0
export DEBIAN_FRONTEND=noninteractive
install=(apt-get install --yes --no-install-recommends --quiet "${missing[@]}")
"${install[@]}" >&2 || { apt-get update --quiet >&2 && "${install[@]}" >&2; }
