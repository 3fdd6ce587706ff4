package fakepbs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	records = "../../scheduler/pbs/testdata/records/"
	answers = "../../scheduler/pbs/testdata/answers/"
)

// shortened are records whose paths were shortened after they had been folded.
var shortened = []string{"E-exiting", "F-bigout", "F-missing-outdir-koed", "stagein-missing"}

var attribute = regexp.MustCompile(`(?m)^    ([A-Za-z_.]+) = (.*(?:\n\t.*|\n[^ \n].*)*)$`)

// readFields takes the text form apart: not by our parser, so that the two can't be wrong together.
func readFields(text string) (id string, fields []field) {
	head, _, _ := strings.Cut(text, "\n")
	for _, m := range attribute.FindAllStringSubmatch(text, -1) {
		fields = append(fields, field{m[1], strings.ReplaceAll(m[2], "\n\t", "")})
	}
	return strings.TrimPrefix(head, "Job Id: "), fields
}

func TestTextFormIsTheRecorded(t *testing.T) {
	files, err := filepath.Glob(records + "*.qstat-x-f.out")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".qstat-x-f.out")
		if slices.Contains(shortened, name) {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		id, fields := readFields(string(text))
		assert.Equal(t, string(text), textForm(id, fields), name)
	}
}

// readNode reads JSON with its members in their order.
func readNode(t *testing.T, dec *json.Decoder, name string) jsonNode {
	tok, err := dec.Token()
	require.NoError(t, err)
	switch v := tok.(type) {
	case json.Delim:
		n := jsonNode{name: name, open: v == '{'}
		for dec.More() {
			if v == '[' {
				item, err := dec.Token()
				require.NoError(t, err)
				n.list = append(n.list, item.(string))
				continue
			}
			key, err := dec.Token()
			require.NoError(t, err)
			n.members = append(n.members, readNode(t, dec, key.(string)))
		}
		_, err := dec.Token()
		require.NoError(t, err)
		return n
	case json.Number:
		return jsonNode{name: name, text: v.String()}
	default:
		return jsonNode{name: name, text: tok.(string)}
	}
}

func TestJSONFormIsTheRecorded(t *testing.T) {
	var files []string
	for _, pattern := range []string{records + "*.qstat-x-json.out", answers + "*json*.out", answers + "qstat-unknown.out", answers + "eve-*json*.out"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	require.Greater(t, len(files), 60)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if len(text) == 0 {
			continue
		}
		dec := json.NewDecoder(strings.NewReader(string(text)))
		dec.UseNumber()
		root := readNode(t, dec, "")
		require.GreaterOrEqual(t, len(root.members), 3)
		var stamp int64
		require.NoError(t, json.Unmarshal([]byte(root.members[0].text), &stamp))
		assert.Equal(t, string(text), document(stamp, root.members[3:]...), filepath.Base(file))
	}
}

// What the text form says, the JSON form made from the same fields says in the recorded way.
func TestBothFormsFromTheSameFields(t *testing.T) {
	for _, name := range []string{"F-exit3", "F-ranks", "R-running", "H-userhold", "nodedown-rerunnable"} {
		text, err := os.ReadFile(records + name + ".qstat-x-f.out")
		require.NoError(t, err)
		blob, err := os.ReadFile(records + name + ".qstat-x-json.out")
		require.NoError(t, err)
		id, fields := readFields(string(text))
		dec := json.NewDecoder(strings.NewReader(string(blob)))
		dec.UseNumber()
		recorded := readNode(t, dec, "").members[3].members[0]
		made := jobNode(id, fields)
		require.Equal(t, len(recorded.members), len(made.members), name)
		for i, m := range recorded.members {
			if m.name != "mtime" && m.name != "resources_used" {
				assert.Equal(t, m, made.members[i], name)
			}
		}
	}
}
