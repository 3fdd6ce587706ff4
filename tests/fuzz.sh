#!/bin/bash
# Runs every fuzz target for the given time each: fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."
for dir in $(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | cut -d' ' -f2 | sort -u); do
		echo "== $dir $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 5x "./$dir"
	done
done
