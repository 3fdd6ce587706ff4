#!/bin/bash
# The end-to-end tests on other versions of Slurm: each Debian release in a folder of its own, its cluster made and
# taken down by the tests themselves.
#
#   versions.sh [SUITE...]      trixie has 24.11, sid the newest; both where none is named
#
# The folders stay in $O4S_CHROOTS (/var/tmp/o4s-chroots) for the next time; `chroot.sh --remove` takes one away.
# O4S_RUN is a pattern of go test's -run for the tests of tests/live.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/lib.sh"
[[ $(id -u) == 0 ]] || die "needs root"
cd "$here/../.."
(($#)) || set -- trixie sid
roots=${O4S_CHROOTS:-/var/tmp/o4s-chroots}
command -v debootstrap >/dev/null || { apt-get install --yes --no-install-recommends --quiet debootstrap >&2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=(tests/live tests/breakage scheduler/slurm sbatch)
export CGO_ENABLED=0
mkdir -p "$work/src" "$work/programs"
git archive HEAD | tar -x -C "$work/src"
(cd "$work/src" && go build -trimpath -o "$work/programs/" ./cmd/openai4s ./cmd/openai4s-agent ./cmd/openai4s-gateway)
for p in "${packages[@]}"; do (cd "$work/src" && go test -c -tags live -o "$work/src/$p/e2e.test" "./$p"); done

failed=0
for suite; do
	root=$roots/$suite
	mkdir -p "$root"
	"$here/chroot.sh" "$suite" "$root"
	rm -rf "$root/src" "$root/programs"
	cp -r "$work/src" "$work/programs" "$root/"
	chmod 755 "$root/programs" "$root/programs/"*
	echo "== $suite: $(chroot "$root" /usr/sbin/slurmctld -V)"
	for p in "${packages[@]}"; do
		run=(-test.skip=TestSameWordsOnEveryScheduler) # it builds a PBS, and there is no Go in these folders
		[[ $p != scheduler/slurm ]] || run+=('-test.run=^(TestLive|TestSuiteOnSlurm)') # the others build a fake Slurm
		[[ $p != tests/live || -z ${O4S_RUN:-} ]] || run+=("-test.run=$O4S_RUN")
		if "$here/chroot.sh" "$suite" "$root" sh -c 'cd "/src/$1" && shift && OPENAI4S_TEST_PROGRAMS=/programs O4S_FIRST_PORT=24000 exec ./e2e.test "$@"' sh "$p" \
			-test.timeout=30m "${run[@]}"; then
			echo "ok   $suite $p"
		else
			echo "FAIL $suite $p"
			failed=1
		fi
	done
	"$here/chroot.sh" --unbind "$root"
done
exit $failed
