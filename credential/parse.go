package credential

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deep a member that isn't ours may nest. Our own hello nests one level.
const maxDepth = 16

// errMalformed is wrapped by everything parse refuses.
var errMalformed = errors.New("not a credential")

// members are the names a credential must have, each once.
const members = 6

// parse reads a credential's line by the strict rules: names match by case, no name twice, the JSON types an issuer
// mints, finite expiry, epoch in 0..2^63-1, rank in 0..2^31-1, ids not empty, valid Unicode. Members that aren't ours
// are skipped. The signature is returned as text, unverified.
func parse(line []byte) (Claim, string, error) {
	if len(line) > MaxLine {
		return Claim{}, "", fmt.Errorf("%w: %d bytes, more than %d", errMalformed, len(line), MaxLine)
	}
	// The decoder itself refuses invalid UTF-8, lone surrogates and duplicate names, at every depth.
	d := jsontext.NewDecoder(bytes.NewBuffer(line))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return Claim{}, "", fmt.Errorf("%w: no JSON object", errMalformed)
	}
	var c Claim
	var signature string
	seen := 0
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return Claim{}, "", fmt.Errorf("%w: reading a name: %w", errMalformed, err)
		}
		seen++
		switch name := t.String(); name {
		case "allocation_id":
			c.Allocation, err = readText(d)
		case "epoch":
			c.Epoch, err = readInteger(d, math.MaxInt64)
		case "rank":
			var rank int64
			rank, err = readInteger(d, maxRank)
			c.Rank = int(rank)
		case "expires_at":
			c.Expires, err = readExpiry(d)
		case "nonce":
			c.Nonce, err = readText(d)
		case "signature":
			signature, err = readText(d)
		default:
			seen--
			err = skip(d)
		}
		if err != nil {
			return Claim{}, "", err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return Claim{}, "", fmt.Errorf("%w: reading the end: %w", errMalformed, err)
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return Claim{}, "", fmt.Errorf("%w: something follows the object", errMalformed)
	}
	if seen != members {
		return Claim{}, "", fmt.Errorf("%w: %d of its %d members", errMalformed, seen, members)
	}
	if err := c.check(); err != nil {
		return Claim{}, "", fmt.Errorf("%w: %w", errMalformed, err)
	}
	return c, signature, nil
}

func readText(d *jsontext.Decoder) (string, error) {
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '"' {
		return "", fmt.Errorf("%w: no string where one belongs", errMalformed)
	}
	return t.String(), nil
}

// readNumber returns a number's own spelling.
func readNumber(d *jsontext.Decoder) (string, error) {
	if d.PeekKind() != '0' {
		return "", fmt.Errorf("%w: no number where one belongs", errMalformed)
	}
	v, err := d.ReadValue()
	if err != nil {
		return "", fmt.Errorf("%w: reading a number: %w", errMalformed, err)
	}
	return string(v), nil
}

// readInteger takes digits alone: a fraction, an exponent or a sign isn't what an issuer mints.
func readInteger(d *jsontext.Decoder, most int64) (int64, error) {
	text, err := readNumber(d)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || int64(n) > most {
		return 0, fmt.Errorf("%w: a whole number out of its range", errMalformed)
	}
	return int64(n), nil
}

func readExpiry(d *jsontext.Decoder) (float64, error) {
	text, err := readNumber(d)
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil { // 1e400 is a number in JSON and infinite as a double
		return 0, fmt.Errorf("%w: an expiry out of range", errMalformed)
	}
	return f, nil
}

// skip passes over one value, whatever it is, without going deeper than maxDepth.
func skip(d *jsontext.Decoder) error {
	outer := d.StackDepth()
	for {
		if _, err := d.ReadToken(); err != nil {
			return fmt.Errorf("%w: skipping a member: %w", errMalformed, err)
		}
		switch depth := d.StackDepth(); {
		case depth == outer:
			return nil
		case depth > maxDepth:
			return fmt.Errorf("%w: nested deeper than %d", errMalformed, maxDepth)
		}
	}
}
