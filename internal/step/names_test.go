package step

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRelpathsThatCannotBeResolvedAreRefused(t *testing.T) {
	for _, name := range []string{"", "/a", `a\b`, "a//b", "a/", "../a", "./a", "a/..", "a/./b", "a\nb", "a\x00", "a\xffb", ".", ".."} {
		require.Error(t, CheckRelpath(name), "%q", name)
	}
	for _, name := range []string{"a", "a/b.csv", "a b", "…", "..a", "a..", "100%", "a:b", "\x7f"} {
		require.NoError(t, CheckRelpath(name), "%q", name)
	}
}

func TestClaimedNamesAreUniqueAndValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := rapid.Bool().Draw(t, "files")
		set := newNameSet(files)
		given := map[string]bool{}
		part := rapid.SampledFrom([]string{"a", "b", "a.csv", ".x", "..."})
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			name := strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "name"), "/")
			got, err := set.claim("outputs", rapid.SampledFrom([]string{"p", "a", "x/y", "..", "."}).Draw(t, "port"), name)
			if err != nil {
				t.Fatalf("claiming %q: %v", name, err)
			}
			if given[got] {
				t.Fatalf("%q was given twice", got)
			}
			if err := CheckRelpath(got); err != nil {
				t.Fatal(err)
			}
			for dir := path.Dir(got); files && dir != "."; dir = path.Dir(dir) {
				if given[dir] {
					t.Fatalf("%q would be a file and a folder", dir)
				}
			}
			given[got] = true
		}
	})
}

func TestPortsNameIsOnePathComponent(t *testing.T) {
	for port, want := range map[string]string{"a": "a", "a/b": "a_b", `a\b`: "a_b", "..": "_", ".": "_", "a b": "a b"} {
		require.Equal(t, want, portDir(port))
	}
	for _, port := range []string{"", " ", "\t", "a\nb", "a\x00", "\xff"} {
		_, err := checkPort(port)
		require.Error(t, err, "%q", port)
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"*.csv", "a.csv", true}, {"*.csv", "d/a.csv", false}, {"d/*.csv", "d/a.csv", true}, {"d", "d/e/a.csv", true},
		{"d/", "d/a", true}, {"./d/*", "d/a", true}, {"**/*.csv", "a.csv", true}, {"**/*.csv", "d/e/a.csv", true},
		{"**/*.csv", "d/e/a.txt", false}, {"d/**", "d/e/a", true}, {"d/**", "d", false}, {"**", "a", true}, {"**", "a/b", true},
		{"d/**/e/*", "d/e/a", true}, {"d/**/e/*", "d/x/y/e/a", true}, {"d/**/e/*", "d/x/a", false}, {"a?c", "abc", true},
		{"[ab].csv", "b.csv", true}, {".", "a", false},
	} {
		g, err := newOutputGlob("p", c.glob)
		require.NoError(t, err)
		require.Equal(t, c.want, g.match(strings.Split(c.name, "/")), "%s on %s", c.glob, c.name)
	}
	for _, glob := range []string{"", "/a", "..", "../a", "a/../../b", "[", "a/[x"} {
		_, err := newOutputGlob("p", glob)
		require.Error(t, err, "%q", glob)
	}
	_, err := newOutputGlob(" ", "*")
	require.Error(t, err)
}
