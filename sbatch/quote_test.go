package sbatch

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// echoed is what a shell makes of a quoted text, followed by one that tells the end.
func echoed(t interface {
	require.TestingT
	Helper()
}, text string) string {
	t.Helper()
	out, err := exec.Command("/bin/sh", "-c", "printf '%s.' "+Quote(text)).Output()
	require.NoError(t, err, "quoted: %s", Quote(text))
	got, whole := strings.CutSuffix(string(out), ".")
	require.True(t, whole)
	return got
}

var quoteSeeds = []string{
	"", "plain", "-n", "--", "two words", "new\nline", "\r\n", "it's", "'", "''", `\`, `\'`, `"$HOME"`, "$(id)", "`id`", "a;b", "a&b",
	"~", "~root", "*", "?[a]", "x=y", "#", "!", "{a,b}", "ä", "日本", "\xff\xfe", "\x01\x7f", "a'b'c", strings.Repeat("'", 100),
}

func TestQuoteRoundTrip(t *testing.T) {
	for _, text := range quoteSeeds {
		require.Equal(t, text, echoed(t, text))
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ReplaceAll(string(rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "text")), "\x00", "")
		require.Equal(t, text, echoed(t, text))
	})
}

func TestQuoteLeavesPlainWordsAlone(t *testing.T) {
	for _, text := range []string{"plain", "/opt/a-b_c.d", "user@host:8761", "50%", "a,b+c", "--nodes=4"} {
		require.Equal(t, text, Quote(text))
	}
	require.Equal(t, "''", Quote(""))
	require.Equal(t, "'PATH=/x'", Quote("PATH=/x"), "it would be an assignment as a first word")
}

func FuzzQuote(f *testing.F) {
	for _, text := range quoteSeeds {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ReplaceAll(text, "\x00", "")
		require.Equal(t, text, echoed(t, text))
	})
}

// TestDirectiveWord undoes the quoting as sbatch does.
func TestDirectiveWord(t *testing.T) {
	require.Equal(t, "a=b", directiveWord("a=b"))
	require.Equal(t, `"a b"`, directiveWord("a b"))
	require.Equal(t, `""`, directiveWord(""))
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune(`"'\ #:;$=ab`+"\t")), rapid.Rune())).Draw(t, "value")
		if oneLine(value) != nil || value == "" {
			return
		}
		value += rapid.SampledFrom([]string{"", "hetjob", "x PackJob y"}).Draw(t, "separator")
		argument, rest := sbatchArgument(option("--x", value))
		require.Equal(t, "--x="+value, argument)
		require.Empty(t, rest)
	})
}

// sbatchArgument takes one argument from a line as sbatch does: a blank or a hash ends it outside quotes, a
// backslash takes the next character's meaning everywhere.
func sbatchArgument(line string) (argument, rest string) {
	for _, separator := range []string{"hetjob", "packjob"} {
		if i := strings.Index(strings.ToLower(line), separator); i >= 0 {
			line = line[:i] + strings.Repeat(" ", len(separator)) + line[i+len(separator):]
		}
	}
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && i+1 < len(line):
			i++
			b.WriteByte(line[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case c == '"' || c == '\'':
			quote = c
		case c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '#':
			return b.String(), line[i:]
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}
