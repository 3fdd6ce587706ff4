package credential

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hello is a credential line with more members, as a framed agent sends it.
func hello(line []byte, more string) []byte {
	return fmt.Appendf(nil, "%s, %s}", line[:len(line)-1], more)
}

func TestParseIgnoresOtherMembers(t *testing.T) {
	c := claim()
	line := testSecret("a").Issue(c)
	for name, more := range map[string]string{
		"agent":           `"agent": {"protocol": "openai4s/1", "attempt": "00", "rank": 9, "nested": [1, {"nonce": "x"}]}`,
		"case":            `"Rank": 7, "NONCE": "x"`,
		"as deep as goes": `"x": ` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1),
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := parse(hello(line, more))
			require.NoError(t, err)
			require.Equal(t, c, got)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	line := string(testSecret("a").Issue(claim()))
	tests := map[string]string{
		"duplicate name inside agent": string(hello([]byte(line), `"agent": {"attempt": "a", "attempt": "b"}`)),
		"duplicate unknown name":      string(hello([]byte(line), `"x": 1, "x": 2`)),
		"duplicate by escape":         string(hello([]byte(line), `"r\u0061nk": 1`)),
		"one level too deep":          string(hello([]byte(line), `"x": `+strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth))),
		"lone surrogate elsewhere":    string(hello([]byte(line), `"x": "\ud800"`)),
		"line too long":               string(hello([]byte(line), `"x": "`+strings.Repeat("x", MaxLine)+`"`)),
		"a member missing":            strings.Replace(line, `"rank": 1, `, "", 1),
		"rank beyond 31 bits":         strings.Replace(line, `"rank": 1`, `"rank": 2147483648`, 1),
		"minus zero":                  strings.Replace(line, `"rank": 1`, `"rank": -0`, 1),
		"rank with a fraction":        strings.Replace(line, `"rank": 1`, `"rank": 1.0`, 1),
		"expiry beyond a double":      strings.Replace(line, "1764536400.0", "1e400", 1),
		"signature null":              line[:strings.LastIndex(line, `"signature"`)] + `"signature": null}`,
		"cut":                         line[:len(line)-1],
		"newline inside":              line[:len(line)-2],
		"resume without a number":     strings.Replace(line, `"nonce": "`, `"nonce": "resume.`, 1),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, line, text)
			_, _, err := parse([]byte(text))
			require.ErrorIs(t, err, errMalformed)
		})
	}
}

func TestResumeNumber(t *testing.T) {
	tests := []struct {
		nonce string
		n     uint64
		ok    bool
	}{
		{ResumeNonce(1), 1, true},
		{ResumeNonce(9223372036854775807), 9223372036854775807, true},
		{NewNonce(), 0, true},
		{"resumed", 0, true},
		{"resume", 0, true},
		{"resume.", 0, false},
		{"resume.1", 0, false},
		{"resume.1.", 0, false},
		{"resume.0.x", 0, false},
		{"resume.01.x", 0, false},
		{"resume.+1.x", 0, false},
		{"resume.1_0.x", 0, false},
		{"resume.٣.x", 0, false},
		{"resume..x", 0, false},
		{"resume.9223372036854775808.x", 0, false},
	}
	for _, tt := range tests {
		n, ok := resumeNumber(tt.nonce)
		require.Equal(t, tt.ok, ok, tt.nonce)
		require.Equal(t, tt.n, n, tt.nonce)
	}
}

func TestNonces(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		n := NewNonce()
		require.Regexp(t, `^[A-Za-z0-9_-]{32}$`, n)
		require.False(t, seen[n])
		seen[n] = true
	}
	require.Regexp(t, `^resume\.7\.[A-Za-z0-9_-]{32}$`, ResumeNonce(7))
}

// No log line shows a nonce by printing a claim.
func TestClaimPrintsNoNonce(t *testing.T) {
	c := claim()
	for _, v := range []any{c, &c, Admission{Claim: c}, struct{ C Claim }{c}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			require.NotContains(t, fmt.Sprintf(verb, v), c.Nonce, "%T under %s", v, verb)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range loadVectors(f).Vectors {
		line, err := hex.DecodeString(v.Line)
		if err != nil {
			f.Fatal(err)
		}
		if len(line) < 1000 {
			f.Add(line)
		}
	}
	s := testSecret("fuzz")
	f.Add(hello(s.Issue(claim()), `"agent": {"attempt": "00"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		c, signature, err := parse(line)
		if err != nil {
			if !errors.Is(err, errMalformed) || c != (Claim{}) || signature != "" {
				t.Fatalf("%v with %v", err, c)
			}
			return
		}
		if err := c.check(); err != nil {
			t.Fatal(err)
		}
		// What was read can be issued, and reads back as the same claim with a signature that holds.
		again, signature, err := parse(s.Issue(c))
		if len(line) < MaxLine/12 && (err != nil || again != c || !s.verify(again, signature)) {
			t.Fatalf("%#v became %#v: %v", c, again, err)
		}
	})
}

func FuzzResumeNumber(f *testing.F) {
	f.Add("resume.1.x")
	f.Add("resume.18446744073709551615.x")
	f.Add("pTyGJMuHbEL31IeL2HPcHyGcFRl1SPnX")
	f.Fuzz(func(t *testing.T, nonce string) {
		n, ok := resumeNumber(nonce)
		prefix := strings.HasPrefix(nonce, resumePrefix)
		switch {
		case !ok && (!prefix || n != 0), ok && prefix != (n > 0):
			t.Fatalf("%q: %d %v", nonce, n, ok)
		case n > 0 && !strings.HasPrefix(nonce, fmt.Sprintf("resume.%d.", n)):
			t.Fatalf("%q: %d has another spelling", nonce, n)
		}
	})
}
