package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestHostlist(t *testing.T) {
	for want, names := range map[string]string{
		"":                      "",
		"n1":                    "n1",
		"n[1-3]":                "n1 n2 n3",
		"n[1-3],x":              "n1 n2 n3 x",
		"n[9-11]":               "n9 n10 n11",
		"n[08-09],n10":          "n08 n09 n10",
		"n[3,1-2]":              "n3 n1 n2",
		"a1,b1,a2":              "a1 b1 a2",
		"login,login":           "login login",
		"n12345678901":          "n12345678901",
		"rack2-n[1-2],rack3-n1": "rack2-n1 rack2-n2 rack3-n1",
	} {
		assert.Equal(t, want, hostlist(strings.Fields(names)), names)
	}
}

// Whatever the names, whoever expands the list gets them back in the same order.
func TestHostlistExpandsToItsNames(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"n", "gpu", "r1-n", "x"}).Draw(t, "prefix") + rapid.SampledFrom([]string{"", "0", "1", "2", "3", "9", "10", "11", "08", "09", "099", "100", "999999999", "1000000000"}).Draw(t, "number")
	})
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(name, 1, 12).Draw(t, "names")
		if got := expandList(hostlist(names)); strings.Join(got, " ") != strings.Join(names, " ") {
			t.Fatalf("%q became %q, which is %q", names, hostlist(names), got)
		}
	})
}

// expandList is the reading of a hostlist in a few lines, without any of its checks.
func expandList(list string) []string {
	var out []string
	for list != "" {
		part, rest := list, ""
		if i := strings.IndexAny(list, ",["); i >= 0 && list[i] == '[' {
			end := strings.IndexByte(list, ']')
			part, rest = list[:end+1], strings.TrimPrefix(list[end+1:], ",")
		} else if i >= 0 {
			part, rest = list[:i], list[i+1:]
		}
		list = rest
		prefix, ranges, ok := strings.Cut(strings.TrimSuffix(part, "]"), "[")
		if !ok {
			out = append(out, part)
			continue
		}
		for r := range strings.SplitSeq(ranges, ",") {
			low, high, isRange := strings.Cut(r, "-")
			if !isRange {
				high = low
			}
			from, _ := strconv.Atoi(low)
			to, _ := strconv.Atoi(high)
			for n := from; n <= to; n++ {
				out = append(out, fmt.Sprintf("%s%0*d", prefix, len(low), n))
			}
		}
	}
	return out
}
