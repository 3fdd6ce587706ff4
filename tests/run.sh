#!/bin/bash
# Everything that must hold on main: installs what the tests need, then formatting, vet, linter, the tests under the
# race detector (fuzz seeds included), breakage on a fake PBS, the external step against a real S3 server, and the
# end-to-end tests on a real Slurm that they bring up and take down.
# Needs Go, git and, for the parts that make users and a cluster, root.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -mod=readonly"

step() { printf '\n== %s\n' "$*"; }

step install what the tests need
if [[ $(id -u) == 0 ]]; then
	tests/cluster/install.sh --accounting
	tests/install.sh
else
	echo "not root: without Slurm and a second user the end-to-end tests can't run; use sudo for all of them" >&2
	exit 1
fi

step formatting, vet, linter
make --no-print-directory check

step tests under the race detector
go test -race -timeout 15m ./...

step breakage on a fake PBS
make --no-print-directory pbs

step the external step against a real S3 server
make --no-print-directory s3

step end-to-end tests on a real Slurm
make --no-print-directory live
