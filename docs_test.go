package hpc_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTroubleshootingHasOurWords: what the page explains are words that a program of ours prints.
func TestTroubleshootingHasOurWords(t *testing.T) {
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "tests" || d.Name() == ".git"):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".tmpl"):
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	}))
	page, err := os.ReadFile("docs/troubleshooting.md")
	require.NoError(t, err)
	headings := regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(headings), 20)
	for _, h := range headings {
		for part := range strings.SplitSeq(h[1], "…") {
			part = strings.Trim(part, " ,.()")
			require.Contains(t, all.String(), part, h[1])
		}
	}
}
