package credential

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxLine is the most bytes a credential's line may have, without its newline.
const MaxLine = 64 << 10

// maxRank is the highest rank a credential can name; what an allocation really has is the Judge's word.
const maxRank = math.MaxInt32

// Claim is what a credential says. It prints without its nonce, which belongs in no log.
type Claim struct {
	Allocation string
	Epoch      int64
	Rank       int
	Expires    float64 // Unix seconds
	Nonce      string  `json:"-"`
}

// String names the rank, without the nonce.
func (c Claim) String() string {
	return fmt.Sprintf("allocation %q epoch %d rank %d", c.Allocation, c.Epoch, c.Rank)
}

// GoString is String, so that %#v shows no nonce either.
func (c Claim) GoString() string { return "credential.Claim{" + c.String() + "}" }

// check says whether a verifier would take the claim's values at all.
func (c Claim) check() error {
	switch {
	case c.Allocation == "" || !utf8.ValidString(c.Allocation):
		return fmt.Errorf("%w: allocation id %q", ErrClaim, c.Allocation)
	case c.Nonce == "" || !utf8.ValidString(c.Nonce):
		return fmt.Errorf("%w: nonce is empty or not UTF-8", ErrClaim)
	case c.Epoch < 0:
		return fmt.Errorf("%w: epoch %d", ErrClaim, c.Epoch)
	case c.Rank < 0 || c.Rank > maxRank:
		return fmt.Errorf("%w: rank %d", ErrClaim, c.Rank)
	case math.IsNaN(c.Expires) || math.IsInf(c.Expires, 0):
		return fmt.Errorf("%w: expiry %v", ErrClaim, c.Expires)
	}
	if _, ok := resumeNumber(c.Nonce); !ok {
		return fmt.Errorf("%w: nonce has the resume prefix and no number", ErrClaim)
	}
	return nil
}

const resumePrefix = "resume."

// NewNonce returns 24 random bytes as 32 URL-safe base64 characters.
func NewNonce() string {
	var b [24]byte
	rand.Read(b[:]) // never fails: the runtime ends the process where there is no randomness
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// ResumeNonce returns "resume.<n>.<random>"; n counts from 1.
func ResumeNonce(n uint64) string {
	return resumePrefix + strconv.FormatUint(n, 10) + "." + NewNonce()
}

// resumeNumber returns a resume nonce's n, or 0 for any other nonce. ok is false where the prefix is there and the
// rest isn't what ResumeNonce makes: a number that has one spelling, at least 1, and something random behind it.
func resumeNumber(nonce string) (n uint64, ok bool) {
	rest, resume := strings.CutPrefix(nonce, resumePrefix)
	if !resume {
		return 0, true
	}
	digits, random, found := strings.Cut(rest, ".")
	if !found || random == "" || digits == "" || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63) // so that a next one exists
	if err != nil {
		return 0, false
	}
	return n, true
}

// IsResume tells whether the claim brings a rank back that was admitted before.
func (c Claim) IsResume() bool {
	n, ok := resumeNumber(c.Nonce)
	return ok && n > 0
}
