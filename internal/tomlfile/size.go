package tomlfile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/docker/go-units"
)

// Size is an amount of memory in bytes, written with a binary unit, "64GiB". "" is 0: nothing is asked for.
type Size int64

const sizeHint = `sizes are written like "512MiB" or "64GiB"`

func (z *Size) fromTOML(v any) *Error {
	switch v := v.(type) {
	case string:
		if v == "" {
			*z = 0
			return nil
		}
		n, err := ParseSize(v)
		*z = Size(n)
		return asError(err)
	case int64:
		return &Error{Msg: fmt.Sprintf("must be a size with a unit, not the number %d", v), Hint: sizeUnitHint(strconv.FormatInt(v, 10))}
	}
	return &Error{Msg: "must be a size, not " + describe(v), Hint: sizeHint}
}

func sizeUnitHint(digits string) string {
	if strings.HasPrefix(digits, "-") || len(digits) > 6 {
		return sizeHint
	}
	return fmt.Sprintf(`say the unit: "%[1]sGiB" or "%[1]sMiB"`, digits)
}

var (
	sizeForm  = regexp.MustCompile(`^([0-9]{1,15})(KiB|MiB|GiB|TiB)$`)
	looseSize = regexp.MustCompile(`^([0-9]{1,9})\s*([kKmMgGtT])(?:[iI]?[bB])?$`)
	fracSize  = regexp.MustCompile(`^([0-9]{1,6}\.[0-9]{1,4})(MiB|GiB|TiB)$`)
)

// ParseSize reads a size with one of the units KiB, MiB, GiB and TiB into bytes. The error is an *Error with message
// and hint.
func ParseSize(s string) (int64, error) {
	m := sizeForm.FindStringSubmatch(s)
	if m == nil {
		return 0, badSize(s)
	}
	unit := map[string]int64{"KiB": units.KiB, "MiB": units.MiB, "GiB": units.GiB, "TiB": units.TiB}[m[2]]
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > (1<<60)/unit {
		return 0, &Error{Msg: Show(s) + " is larger than an exbibyte"}
	}
	return n * unit, nil
}

func badSize(s string) *Error {
	e := &Error{Msg: Show(s) + " is not a size", Hint: sizeHint}
	switch {
	case s == "":
		e.Msg = "a size may not be empty"
	case strings.HasPrefix(s, "-"):
		e.Msg = Show(s) + " is negative"
	case strings.Trim(s, "0123456789") == "":
		e.Msg = Show(s) + " has no unit"
		e.Hint = sizeUnitHint(s)
	case looseSize.MatchString(s):
		m := looseSize.FindStringSubmatch(s)
		e.Hint = fmt.Sprintf("write %q", m[1]+strings.ToUpper(m[2])+"iB")
	case fracSize.MatchString(s):
		if n, err := units.RAMInBytes(s); err == nil {
			e.Hint = fmt.Sprintf("write whole units: %q", FormatSize(n/units.KiB*units.KiB))
		}
	}
	return e
}

// FormatSize is the shortest form that ParseSize reads back; what is no multiple of a KiB is rounded up to one.
func FormatSize(n int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"TiB", units.TiB}, {"GiB", units.GiB}, {"MiB", units.MiB}} {
		if n >= u.unit && n%u.unit == 0 {
			return fmt.Sprintf("%d%s", n/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%dKiB", (n+units.KiB-1)/units.KiB)
}

// String is FormatSize's form, "" for 0.
func (z Size) String() string {
	if z == 0 {
		return ""
	}
	return FormatSize(int64(z))
}
