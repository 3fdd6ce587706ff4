#!/bin/bash
# Installs what up.sh needs, out of Debian's or Ubuntu's own packages, and starts none of their services.
#
#   install.sh [--accounting]
#
# Needs root. Does nothing where everything is there already.
set -euo pipefail

packages=(slurmctld slurmd slurm-client munge)
while (($#)); do
	case $1 in
	--accounting) packages+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server) ;;
	*) echo "install: unknown option $1" >&2; exit 1 ;;
	esac
	shift
done

missing=()
for p in "${packages[@]}"; do
	[[ $(dpkg-query --show --showformat='${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
done
((${#missing[@]})) || exit 0
[[ $(id -u) == 0 ]] || { echo "install: ${missing[*]} missing; run this as root" >&2; exit 1; }

# The packages would start their services at once. invoke-rc.d asks policy-rc.d first, and 101 means no; one
# that the machine has is kept, and put back whatever happens.
policy=/usr/sbin/policy-rc.d
saved=
if [[ -e $policy || -L $policy ]]; then
	saved=$policy.o4s-$$
	mv "$policy" "$saved"
fi
restore() {
	rm -f "$policy"
	[[ -z $saved ]] || mv "$saved" "$policy"
}
trap restore EXIT
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
install=(apt-get install --yes --no-install-recommends --quiet "${missing[@]}")
"${install[@]}" >&2 || { apt-get update --quiet >&2 && "${install[@]}" >&2; }
echo "install: ${missing[*]} installed, no service started" >&2
