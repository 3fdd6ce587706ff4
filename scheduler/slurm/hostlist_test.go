package slurm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHostlist(t *testing.T) {
	for list, want := range map[string]string{
		"":                      "",
		"(null)":                "",
		"None assigned":         "",
		"n1":                    "n1",
		"n[1-4,7]":              "n1 n2 n3 n4 n7",
		"n[1-4],m2,head":        "n1 n2 n3 n4 m2 head",
		"node[008-011]":         "node008 node009 node010 node011",
		"node[9-11]":            "node9 node10 node11",
		"node[09-100,7]x":       "", // checked below by its length
		"a[1-2]b[3-4]":          "a1b3 a1b4 a2b3 a2b4",
		"r[1-2]-n[01-02].ib":    "r1-n01.ib r1-n02.ib r2-n01.ib r2-n02.ib",
		"n[5]":                  "n5",
		"[1-2]":                 "1 2",
		"n18446744073709551615": "n18446744073709551615",
	} {
		got, err := expandHosts(list)
		require.NoError(t, err, list)
		if list == "node[09-100,7]x" {
			assert.Len(t, got, 93)
			assert.Equal(t, []string{"node09x", "node10x"}, got[:2])
			assert.Equal(t, []string{"node100x", "node7x"}, got[91:])
			continue
		}
		assert.Equal(t, want, strings.Join(got, " "), list)
	}
}

func TestHostlistRefused(t *testing.T) {
	for _, list := range []string{
		"n[", "n]", "n[1", "n1]", "n[1-2", "n[[1]]", "n[]", "n[1-]", "n[-2]", "n[3-1]", "n[a-b]", "n[1,,2]", ",", "a,,b", "a,", "n[1-2]]",
		"n[1-99999999]", "n[1-70000]", "a[1-300]b[1-300]", "a[1-9]b[1-9]c[1-9]d[1-9]e[1-9]f[1-9]", "n[1 2]", "n 1", "n\x001", "n[1-18446744073709551616]",
		strings.Repeat("x", 300), strings.Repeat("[1]", 9), strings.Repeat("n[1-1000],", 70), strings.Repeat("n,", 1<<20),
	} {
		got, err := expandHosts(list)
		assert.ErrorIs(t, err, errHostlist, "%.40q", list)
		assert.Nil(t, got)
	}
	full, err := expandHosts("n[1-65536]")
	require.NoError(t, err)
	assert.Len(t, full, maxHosts)
}

func FuzzHostlist(f *testing.F) {
	for _, s := range []string{"n[1-4,7]", "a[1-2]b[3-4],c", "node[008-011]", "[", "n[1-70000]", ",", "(null)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := expandHosts(list)
		if err != nil {
			assert.ErrorIs(t, err, errHostlist)
			return
		}
		assert.LessOrEqual(t, len(hosts), maxHosts)
		for _, h := range hosts {
			if h == "" || len(h) > maxNameLen || strings.ContainsAny(h, "[], \n\x00") {
				t.Fatalf("%q expands to %q", list, h)
			}
		}
		// A list of plain names stands for itself.
		again, err := expandHosts(strings.Join(hosts, ","))
		if len(strings.Join(hosts, ",")) <= maxHostlist && len(hosts) > 0 && again != nil {
			require.NoError(t, err)
			assert.Equal(t, hosts, again)
		}
	})
}
