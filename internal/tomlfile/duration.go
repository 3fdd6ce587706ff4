package tomlfile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span written with units, "1d12h". Its unit is the nanosecond, its resolution the second.
type Duration time.Duration

// maxDuration keeps sums of a few durations far from overflow.
const maxDuration = 36500 * day

const day = 24 * time.Hour

func (d *Duration) fromTOML(v any) *Error {
	switch v := v.(type) {
	case string:
		parsed, err := ParseDuration(v)
		*d = Duration(parsed)
		return asError(err)
	case int64:
		return &Error{Msg: fmt.Sprintf("must be a duration with a unit, not the number %d", v), Hint: unitHint(strconv.FormatInt(v, 10))}
	case time.Time:
		return &Error{Msg: "must be a duration, not a time of day", Hint: durationHint}
	}
	return &Error{Msg: "must be a duration, not " + describe(v), Hint: durationHint}
}

const durationHint = `durations are written like "90s", "30m", "4h" or "1d12h"`

func unitHint(digits string) string {
	if strings.HasPrefix(digits, "-") || len(digits) > 9 {
		return durationHint
	}
	return fmt.Sprintf(`say the unit: "%[1]sm" for minutes, "%[1]ss" for seconds, "%[1]sh" for hours`, digits)
}

var (
	durationForm = regexp.MustCompile(`^(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?$`)
	clockForm    = regexp.MustCompile(`^(?:([0-9]{1,5})-)?([0-9]{1,5})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?$`)
	fractionForm = regexp.MustCompile(`^([0-9]{1,6}\.[0-9]{1,4})([dhm])$`)
)

// ParseDuration reads a span written with the units d, h, m and s, largest first: "90s", "1d12h". The error is an
// *Error with message and hint.
func ParseDuration(s string) (time.Duration, error) {
	m := durationForm.FindStringSubmatch(s)
	if m == nil || s == "" {
		return 0, badDuration(s)
	}
	var total time.Duration
	for i, unit := range []time.Duration{day, time.Hour, time.Minute, time.Second} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseInt(m[i+1], 10, 64)
		if err != nil || n > int64(maxDuration/unit) {
			return 0, &Error{Msg: Show(s) + " is longer than 100 years"}
		}
		total += time.Duration(n) * unit
	}
	if total > maxDuration {
		return 0, &Error{Msg: Show(s) + " is longer than 100 years"}
	}
	return total, nil
}

// badDuration says what is wrong with s, and the right spelling where it can be told.
func badDuration(s string) *Error {
	e := &Error{Msg: Show(s) + " is not a duration", Hint: durationHint}
	lower := strings.ToLower(strings.Join(strings.Fields(s), ""))
	switch {
	case s == "":
		e.Msg = "a duration may not be empty"
	case strings.HasPrefix(s, "-"):
		e.Msg = Show(s) + " is negative"
	case strings.Trim(s, "0123456789") == "":
		e.Msg = Show(s) + " has no unit"
		e.Hint = unitHint(s)
	case lower != s && durationForm.MatchString(lower):
		e.Hint = fmt.Sprintf("write %q", lower)
	case fractionForm.MatchString(s):
		m := fractionForm.FindStringSubmatch(s)
		f, _ := strconv.ParseFloat(m[1], 64)
		unit := map[string]time.Duration{"d": day, "h": time.Hour, "m": time.Minute}[m[2]]
		e.Hint = fmt.Sprintf("write whole units: %q", FormatDuration(time.Duration(f*float64(unit)).Round(time.Second)))
	case clockForm.MatchString(s):
		e.Msg = Show(s) + " is a scheduler's time, not a duration"
		e.Hint = fmt.Sprintf("write %q", FormatDuration(clock(clockForm.FindStringSubmatch(s))))
	case strings.HasSuffix(s, "ms"), strings.HasSuffix(s, "us"), strings.HasSuffix(s, "ns"):
		e.Hint = "the smallest unit is a second"
	}
	return e
}

// clock reads a batch scheduler's time: MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS.
func clock(m []string) time.Duration {
	n := func(i int) time.Duration { v, _ := strconv.Atoi(m[i]); return time.Duration(v) }
	switch {
	case m[1] != "":
		return n(1)*day + n(2)*time.Hour + n(3)*time.Minute + n(4)*time.Second
	case m[4] == "":
		return n(2)*time.Minute + n(3)*time.Second
	}
	return n(2)*time.Hour + n(3)*time.Minute + n(4)*time.Second
}

// FormatDuration is the shortest form that ParseDuration reads back, to the second.
func FormatDuration(d time.Duration) string {
	if d < 0 {
		return "-" + FormatDuration(-d)
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

// String is FormatDuration's form.
func (d Duration) String() string { return FormatDuration(time.Duration(d)) }
