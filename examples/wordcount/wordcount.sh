#!/bin/sh
# Counts words across ranks. Rank 0 lists the files, every rank counts its share, rank 0 merges and checks.
# The ranks meet in a folder below the job's workdir, which all of them share; a file there is written under another
# name and renamed, so that whoever sees it sees all of it.
set -eu
export LC_ALL=C

rank=${OPENAI4S_RANK:?this runs as a rank of a job: openai4s submit --nodes 4 --wait job.toml}
size=$OPENAI4S_WORLD_SIZE
meeting=wordcount-$OPENAI4S_WORKLOAD
patience=300 # seconds that one step of another rank may take

fail() {
	echo "rank $rank: $1" >&2
	exit 1
}

progress() {
	printf '@openai4s:progress {"fraction":%s,"phase":"%s"}\n' "$1" "$2"
}

# await FILE waits until another rank put it in place; listing the folder makes a shared file system look again.
await() {
	left=$((patience * 5))
	until ls "$meeting/" 2>/dev/null | grep -qxF "$1"; do
		test "$left" -gt 0 || fail "waited ${patience}s for $meeting/$1"
		left=$((left - 1))
		sleep 0.2
	done
}

# folder names the one to count: as told, else Go's source tree, else what every machine has.
folder() {
	if test -n "${WORDCOUNT_FOLDER:-}"; then
		echo "$WORDCOUNT_FOLDER"
		return
	fi
	for go in go /usr/local/go/bin/go /usr/lib/go/bin/go; do
		root=$("$go" env GOROOT 2>/dev/null) || continue
		if test -d "$root/src"; then
			echo "$root/src"
			return
		fi
	done
	echo /usr/share
}

# files lists the text files of a folder.
files() {
	find "$1/" -type f \( -name '*.go' -o -name '*.txt' -o -name '*.md' -o -name '*.html' -o -name '*.[1-8]' \
		-o -name '*.s' -o -name '*.pl' -o -name '*.pm' -o -name '*.py' -o -name '*.sh' \) | sort
}

# count RANK SIZE OUT counts the words of every SIZE-th file of the list, beginning with the RANK-th, and writes lines of
# "number word" to OUT. A word is a run of at least three letters. Each tenth of the way is told as progress.
count() {
	awk -v rank="$1" -v size="$2" -v out="$3" '
		(NR - 1) % size == rank { share[++n] = $0 }
		END {
			printf "" > out # also where there are more ranks than files
			for (i = 1; i <= n; i++) {
				while ((got = (getline line < share[i])) > 0) {
					words = split(tolower(line), word, /[^a-z]+/)
					for (w = 1; w <= words; w++)
						if (length(word[w]) > 2) seen[word[w]]++
				}
				if (got < 0) { print "can not read " share[i] > "/dev/stderr"; exit 1 }
				close(share[i])
				if (int(10 * i / n) > tenths) {
					tenths = int(10 * i / n)
					printf "@openai4s:progress {\"fraction\":%.2f,\"phase\":\"counting\"}\n", 0.09 * tenths
					fflush()
				}
			}
			for (w in seen) print seen[w], w > out
		}' "$meeting/files"
}

# merge adds up counts from its input.
merge() {
	awk '{ sum[$2] += $1 } END { for (w in sum) print sum[w], w }' | sort -k1,1nr -k2
}

if test "$rank" = 0; then
	mkdir "$meeting"
	trap 'rm -rf "$meeting"' EXIT
	source=$(folder)
	test -d "$source" || fail "there is no folder $source on $(uname -n)"
	files "$source" >"$meeting/files.new"
	test -s "$meeting/files.new" || fail "there are no text files in $source"
	mv "$meeting/files.new" "$meeting/files"
fi

await files
count "$rank" "$size" "$meeting/counts-$rank.new"
mv "$meeting/counts-$rank.new" "$meeting/counts-$rank"
test "$rank" = 0 || {
	progress 1 counted # a job is as far as its last rank
	exit 0
}

i=0
while test "$i" -lt "$size"; do
	await "counts-$i"
	i=$((i + 1))
done
progress 0.95 merging
cat "$meeting"/counts-* | merge >"$meeting/merged"

progress 0.97 checking
count 0 1 "$meeting/alone.new" >/dev/null
merge <"$meeting/alone.new" >"$meeting/alone"
cmp -s "$meeting/merged" "$meeting/alone" || fail "the counts of $size ranks differ from those of one process"

awk -v files="$(wc -l <"$meeting/files")" -v size="$size" -v source="$source" '
	{ total += $1 }
	END { printf "%d words in %d files of %s, counted by %d ranks and checked against one\n", total, files, source, size }' "$meeting/merged"
head -n 10 "$meeting/merged" | awk '{ printf "%10d  %s\n", $1, $2 }'
