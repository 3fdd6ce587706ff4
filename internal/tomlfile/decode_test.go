package tomlfile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type sample struct {
	Text  string            `toml:"text"`
	Flag  bool              `toml:"flag"`
	Count int               `toml:"count"`
	Maybe *int              `toml:"maybe"`
	Span  Duration          `toml:"span"`
	Long  *Duration         `toml:"long"`
	Mem   Size              `toml:"mem"`
	List  []string          `toml:"list"`
	Words map[string]string `toml:"words"`
	Sub   struct {
		Max int `toml:"max_nodes"`
	} `toml:"sub"`
	Many []struct {
		Path string `toml:"path"`
	} `toml:"many"`
	Hidden string
}

func decodeSample(text string) (sample, error) {
	var s sample
	f, err := Parse("x.toml", []byte(text))
	if err == nil {
		err = f.Decode(&s)
	}
	return s, err
}

func TestDecode(t *testing.T) {
	s, err := decodeSample(`text = "ä"
flag = true
count = -3
maybe = 0
span = "1d12h"
mem = "64GiB"
list = ["a", "b"]
words = { x = "y", "a b" = "" }
sub.max_nodes = 4
[[many]]
path = "one"
[[many]]
path = "two"
`)
	require.NoError(t, err)
	assert.Equal(t, "ä", s.Text)
	assert.True(t, s.Flag)
	assert.Equal(t, -3, s.Count)
	assert.Zero(t, *s.Maybe)
	assert.Equal(t, 36*time.Hour, time.Duration(s.Span))
	assert.Nil(t, s.Long)
	assert.EqualValues(t, 64<<30, s.Mem)
	assert.Equal(t, []string{"a", "b"}, s.List)
	assert.Equal(t, map[string]string{"x": "y", "a b": ""}, s.Words)
	assert.Equal(t, 4, s.Sub.Max)
	assert.Equal(t, "two", s.Many[1].Path)
}

func TestDecodeRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		line       int
		key        Key
		msg, hint  string
	}{
		{"unknown key", "text = \"\"\ncolour = 1", 2, "colour", "unknown key", "known here: count, flag,"},
		{"misspelt key", "cuont = 1", 1, "cuont", "unknown key", "did you mean count?"},
		{"key in another case", "\nText = \"\"", 2, "Text", "unknown key", "did you mean text?"},
		{"field without a tag", "Hidden = \"\"", 1, "Hidden", "unknown key", ""},
		{"unknown key in a table", "[sub]\nmax_node = 4", 2, "sub.max_node", "unknown key", "did you mean max_nodes?"},
		{"unknown key in an array of tables", "[[many]]\npath=\"\"\n[[many]]\npaths=\"\"", 4, "many[1].paths", "unknown key", "did you mean path?"},
		{"unknown table", "[subs]\nmax_nodes = 4", 1, "subs", "unknown key", "did you mean sub?"},
		{"number for text", "text = 4", 1, "text", "must be text, not a number", "quotes"},
		{"date for text", "text = 1979-05-27", 1, "text", "must be text, not a date", "quotes"},
		{"text for a number", "count = \"4\"", 1, "count", "must be a whole number, not text", ""},
		{"fraction for a number", "count = 4.0", 1, "count", "must be a whole number, not the number 4", ""},
		{"number for a flag", "flag = 1", 1, "flag", "must be true or false, not the number 1", ""},
		{"text for a list", "list = \"a\"", 1, "list", "must be a list, not text", `["a"]`},
		{"number in a list", "list = [\n\"a\",\n2]", 3, "list[1]", "must be text, not a number", "quotes"},
		{"text for a table", "sub = \"x\"", 1, "sub", "must be a table, not text", ""},
		{"list for a table", "sub = []", 1, "sub", "must be a table, not a list", ""},
		{"table for many", "[many]\npath = \"x\"", 1, "many", "must be a list, not a table", ""},
		{"number in a map", "[words]\na = \"b\"\nn = 4", 3, "words.n", "must be text, not a number", "quotes"},
		{"number for a duration", "span = 90", 1, "span", "must be a duration with a unit, not the number 90", `"90m"`},
		{"time of day for a duration", "span = 04:00:00", 1, "span", "must be a duration, not a time of day", `"4h"`},
		{"flag for a duration", "long = true", 1, "long", "must be a duration, not the truth value true", `"4h"`},
		{"number for a size", "mem = 64", 1, "mem", "must be a size with a unit, not the number 64", `"64GiB"`},
		{"list for a size", "mem = []", 1, "mem", "must be a size, not a list", `"64GiB"`},
		{"the first of several", "count = \"x\"\nflag = 1\nzzz = 1", 1, "count", "must be a whole number", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := decodeSample(tc.text)
			e := asFileError(t, err)
			assert.Equal(t, tc.line, e.Line)
			assert.Equal(t, tc.key, e.Key)
			assert.Contains(t, e.Msg, tc.msg)
			assert.Contains(t, e.Hint, tc.hint)
		})
	}
}

func TestSays(t *testing.T) {
	f, err := Parse("x.toml", []byte("n = 4\ns = \"x\"\nb = true\nd = \"90m\"\n[t]\nm = \"1024MiB\"\n"))
	require.NoError(t, err)
	assert.True(t, f.Says("n", 4))
	assert.False(t, f.Says("n", 5))
	assert.True(t, f.Says("s", "x"))
	assert.True(t, f.Says("b", true))
	assert.True(t, f.Says("d", 90*time.Minute))
	assert.False(t, f.Says("n", time.Second))
	assert.True(t, f.Says("t.m", Size(1<<30)))
	assert.False(t, f.Says("t.none", 0))
	assert.False(t, f.Says("n.deeper", 0))
}
