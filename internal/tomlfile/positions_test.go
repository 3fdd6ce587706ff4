package tomlfile

import (
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const everyForm = `# a comment with [brackets] and a = 1
top = 1
dotted.a.b = 2
"quoted key"."x\u0041" = 3
'literal.key' = 4
list = [
  1, # ] in a comment
  "]", 'a, "b',
  [ "x",
    "y" ],
]
text = """
fake = 1
[fake]
\""" still"""
raw = '''
fake = 2 \'''
inline = { a = 1, b = { c = "}", d = [
   { e = 1 } ] } }

[table]
  key = "v" # comment
  sub.key = 1.5

[ table . spaced ]
x = 1979-05-27T07:32:00Z
[[many]]
name = "one"
[many.sub]
x = 1
[[many]]
name = "two"
[[many.inner]]
y = 1
[[many.inner]]
y = 2
[many.sub]
x = 2
`

func TestPositions(t *testing.T) {
	f, err := Parse("x.toml", []byte(everyForm))
	require.NoError(t, err)
	for key, line := range map[Key]int{
		"top": 2, "dotted": 3, "dotted.a": 3, "dotted.a.b": 3, `"quoted key"`: 4, `"quoted key".xA`: 4, `"literal.key"`: 5,
		"list": 6, "list[0]": 7, "list[1]": 8, "list[2]": 8, "list[3]": 9, "list[3][1]": 10,
		"text": 12, "raw": 16, "inline": 18, "inline.a": 18, "inline.b.c": 18, "inline.b.d": 18, "inline.b.d[0].e": 19,
		"table": 21, "table.key": 22, "table.sub": 23, "table.sub.key": 23, "table.spaced": 25, "table.spaced.x": 26,
		"many": 27, "many[0]": 27, "many[0].name": 28, "many[0].sub": 29, "many[0].sub.x": 30,
		"many[1]": 31, "many[1].name": 32, "many[1].inner[0]": 33, "many[1].inner[0].y": 34, "many[1].inner[1].y": 36, "many[1].sub.x": 38,
	} {
		assert.True(t, f.Has(key), "%s isn't known", key)
		assert.Equal(t, line, f.Pos(key).Line, "line of %s", key)
	}
	assert.False(t, f.Has("fake"))
	assert.Equal(t, 3, f.Pos("table.key").Column)
	assert.Equal(t, 25, f.Pos("table.spaced.missing.deeper").Line, "what is missing is blamed on what is around it")
	assert.Zero(t, f.Pos("nothing").Line)
}

func TestPositionsWithCarriageReturns(t *testing.T) {
	f, err := Parse("x.toml", []byte("a = 1\r\n[t]\r\nb = [1,\r\n2]\r\n"))
	require.NoError(t, err)
	assert.Equal(t, 3, f.Pos("t.b").Line)
	assert.Equal(t, 4, f.Pos("t.b[1]").Line)
}

func TestKey(t *testing.T) {
	k := Key("profiles").Dot("a.b").Dot(`q"`).Index(3)
	assert.Equal(t, Key(`profiles."a.b"."q\""[3]`), k)
	assert.Equal(t, Key(`profiles."a.b"."q\""`), k.Parent())
	assert.Equal(t, Key(`profiles."a.b"`), k.Parent().Parent())
	assert.Equal(t, Key("profiles"), k.Parent().Parent().Parent())
	assert.Equal(t, Key(""), Key("profiles").Parent())
	assert.Equal(t, Key(`""`), Key("").Dot(""))
}

func TestNearest(t *testing.T) {
	known := []string{"max_nodes", "max_walltime", "walltime", "qos", "queue", "partition"}
	for got, want := range map[string]string{
		"max_node": "max_nodes", "maxnodes": "max_nodes", "Max-Nodes": "max_nodes", "waltime": "walltime", "partiton": "partition", "partitoin": "partition",
		"qso": "qos", "QOS": "qos", "colour": "", "": "", "x": "", strings.Repeat("q", 10000): "",
	} {
		assert.Equal(t, want, Nearest(got, known), "for %.20q", got)
	}
}

// FuzzPositions holds that every text is read or refused without a panic, and that the walk over the text finds
// exactly the keys that the parser does.
func FuzzPositions(f *testing.F) {
	for _, seed := range []string{everyForm, "a = {}", "a=[[],[{}]]", "[[a]]\n[a.b]\n[[a]]", "a = '''x''''", "\"\\x41\" = 1", "a = \"\\", "[", "a.b.\"", "a = 1 b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("x.toml", []byte(text))
		if err != nil {
			return
		}
		var root map[string]any
		_, err = toml.Decode(text, &root)
		require.NoError(t, err)
		keys := map[Key]bool{}
		allKeys("", root, keys)
		for k := range keys {
			require.True(t, file.Has(k), "%q is in the file, and the walk doesn't know it", k)
		}
		for k := range file.at {
			require.True(t, keys[k], "the walk knows %q, which isn't in the file", k)
		}
	})
}

func allKeys(at Key, v any, into map[Key]bool) {
	if at != "" {
		into[at] = true
	}
	switch v := v.(type) {
	case map[string]any:
		for k, sub := range v {
			allKeys(at.Dot(k), sub, into)
		}
	case []any:
		for i, sub := range v {
			allKeys(at.Index(i), sub, into)
		}
	case []map[string]any:
		for i, sub := range v {
			allKeys(at.Index(i), sub, into)
		}
	}
}
