package credential

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// The signed text is what Python's json.dumps makes of the five members with sorted keys and the separators "," and
// ":". It is built from the values, never from the bytes received, so both sides must spell strings and numbers the
// same way to the last character.

// appendSigned appends the text that the signature covers.
func appendSigned(b []byte, c Claim) []byte {
	b = append(b, `{"allocation_id":`...)
	b = appendString(b, c.Allocation)
	b = append(b, `,"epoch":`...)
	b = strconv.AppendInt(b, c.Epoch, 10)
	b = append(b, `,"expires_at":`...)
	b = appendFloat(b, c.Expires)
	b = append(b, `,"nonce":`...)
	b = appendString(b, c.Nonce)
	b = append(b, `,"rank":`...)
	b = strconv.AppendInt(b, int64(c.Rank), 10)
	return append(b, '}')
}

// appendLine appends the credential as the upstream issuer writes it, without a newline.
func appendLine(b []byte, c Claim, signature string) []byte {
	b = append(b, `{"allocation_id": `...)
	b = appendString(b, c.Allocation)
	b = append(b, `, "epoch": `...)
	b = strconv.AppendInt(b, c.Epoch, 10)
	b = append(b, `, "rank": `...)
	b = strconv.AppendInt(b, int64(c.Rank), 10)
	b = append(b, `, "expires_at": `...)
	b = appendFloat(b, c.Expires)
	b = append(b, `, "nonce": `...)
	b = appendString(b, c.Nonce)
	b = append(b, `, "signature": `...)
	b = appendString(b, signature)
	return append(b, '}')
}

const lowerHex = "0123456789abcdef"

// appendString quotes s in pure ASCII: short escapes where JSON has them, lower-case \uXXXX for everything else
// outside 0x20..0x7e, surrogate pairs above U+FFFF. The slash and < > & stay as they are.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= 0x20 && r <= 0x7e:
			b = append(b, byte(r))
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r > 0xffff && r <= utf8.MaxRune:
			r -= 0x10000
			b = appendEscape(b, 0xd800+r>>10)
			b = appendEscape(b, 0xdc00+r&0x3ff)
		default:
			b = appendEscape(b, r)
		}
	}
	return append(b, '"')
}

func appendEscape(b []byte, u rune) []byte {
	return append(b, '\\', 'u', lowerHex[u>>12&0xf], lowerHex[u>>8&0xf], lowerHex[u>>4&0xf], lowerHex[u&0xf])
}

// appendFloat spells f as Python's repr: the shortest digits that read back to the same double, always with ".0" or
// an exponent; the exponent form below 1e-4 and from 1e16 on.
func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "NaN"...)
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	for _, c := range b[start:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}
