package tomlfile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "30m": 30 * time.Minute, "4h": 4 * time.Hour, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour,
		"1h30m": 90 * time.Minute, "1d2h3m4s": 26*time.Hour + 3*time.Minute + 4*time.Second, "100h": 100 * time.Hour, "36500d": maxDuration,
	} {
		d, err := ParseDuration(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, d, s)
	}
}

func TestParseDurationRefuses(t *testing.T) {
	for _, tc := range []struct{ s, msg, hint string }{
		{"", "may not be empty", `"4h"`},
		{"90", "has no unit", `"90m" for minutes, "90s" for seconds, "90h" for hours`},
		{"4:00:00", "is a scheduler's time", `write "4h"`},
		{"04:30:05", "is a scheduler's time", `write "4h30m5s"`},
		{"1-12:00:00", "is a scheduler's time", `write "1d12h"`},
		{"1-12", "is a scheduler's time", `write "1d12h"`},
		{"2-00:30", "is a scheduler's time", `write "2d30m"`},
		{"30:00", "is a scheduler's time", `write "30m"`},
		{"-5m", "is negative", `"4h"`},
		{"1.5h", "is not a duration", `write whole units: "1h30m"`},
		{"2 h", "is not a duration", `write "2h"`},
		{"2H", "is not a duration", `write "2h"`},
		{"30m1h", "is not a duration", `"1d12h"`},
		{"1h1h", "is not a duration", `"1d12h"`},
		{"500ms", "is not a duration", "smallest unit is a second"},
		{"2w", "is not a duration", `"1d12h"`},
		{"two hours", "is not a duration", `"1d12h"`},
		{"+1h", "is not a duration", ""},
		{"１h", "is not a duration", ""},
		{"36501d", "is longer than 100 years", ""},
		{"36500d24h", "is longer than 100 years", ""},
		{"99999999999999999999h", "is longer than 100 years", ""},
		{"1h\n", "is not a duration", `write "1h"`},
		{"\x1b[2J", `"\x1b[2J" is not a duration`, ""},
	} {
		_, err := ParseDuration(tc.s)
		e := asFileError(t, err)
		assert.Contains(t, e.Msg, tc.msg, "message for %q", tc.s)
		assert.Contains(t, e.Hint, tc.hint, "hint for %q", tc.s)
	}
}

func TestDurationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(maxDuration/time.Second)).Draw(t, "seconds")) * time.Second
		back, err := ParseDuration(FormatDuration(d))
		require.NoError(t, err)
		require.Equal(t, d, back)
	})
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"1KiB": 1 << 10, "512MiB": 512 << 20, "64GiB": 64 << 30, "2TiB": 2 << 40, "0GiB": 0} {
		n, err := ParseSize(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, n, s)
	}
	for _, tc := range []struct{ s, msg, hint string }{
		{"", "may not be empty", `"64GiB"`},
		{"64", "has no unit", `"64GiB" or "64MiB"`},
		{"64GB", "is not a size", `write "64GiB"`},
		{"64G", "is not a size", `write "64GiB"`},
		{"64gib", "is not a size", `write "64GiB"`},
		{"64 GiB", "is not a size", `write "64GiB"`},
		{"1.5GiB", "is not a size", `write whole units: "1536MiB"`},
		{"-1GiB", "is negative", ""},
		{"lots", "is not a size", `"64GiB"`},
		{"99999999TiB", "larger than an exbibyte", ""},
		{"9999999999999999GiB", "is not a size", ""},
	} {
		_, err := ParseSize(tc.s)
		e := asFileError(t, err)
		assert.Contains(t, e.Msg, tc.msg, "message for %q", tc.s)
		assert.Contains(t, e.Hint, tc.hint, "hint for %q", tc.s)
	}
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 1<<50).Draw(t, "kibibytes") << 10
		back, err := ParseSize(FormatSize(n))
		require.NoError(t, err)
		require.Equal(t, n, back)
	})
}
