// Package bench measures the real programs end to end, each figure beside a reference of the same run: make bench.
package bench
