package credential

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The vectors were made with the upstream issuer and verifier; strict is this package's answer to each.
type vectors struct {
	Secret  string  `json:"secret_hex"`
	Now     float64 `json:"now"`
	Vectors []struct {
		ID     string `json:"id"`
		Line   string `json:"line_hex"`
		Strict string `json:"strict"`
		Signed string `json:"signed_message"`
		State  struct {
			Epochs   map[string]int64 `json:"epochs"`
			Consumed []string         `json:"consumed"`
		} `json:"state"`
		Admitted struct {
			Allocation string `json:"allocation_id"`
			Epoch      int64  `json:"epoch"`
			Rank       int    `json:"rank"`
			Nonce      string `json:"nonce"`
		} `json:"-"`
		RawAdmitted json.RawMessage `json:"admitted"`
	} `json:"vectors"`
	Floats []struct{ Bits, Text string } `json:"float_table"`
	Chars  []struct {
		CodePoint rune `json:"code_point"`
		Text      string
	} `json:"string_table"`
}

func loadVectors(t testing.TB) vectors {
	t.Helper()
	data, err := os.ReadFile("testdata/credentials.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(data, &v))
	return v
}

func (v vectors) secret(t testing.TB) Secret {
	t.Helper()
	b, err := hex.DecodeString(v.Secret)
	require.NoError(t, err)
	return newSecret([secretSize]byte(b))
}

func TestVectors(t *testing.T) {
	all := loadVectors(t)
	require.Len(t, all.Vectors, 106)
	for _, v := range all.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			g := newGatekeeper(t)
			g.Secret, g.Now = all.secret(t), at(all.Now)
			line, err := hex.DecodeString(v.Line)
			require.NoError(t, err)
			for allocation, floor := range v.State.Epochs {
				require.NoError(t, g.Fence.Raise(t.Context(), allocation, floor))
			}
			if len(v.State.Consumed) > 0 {
				_, err := g.Admit(t.Context(), line, nil, ranks(maxRank))
				require.NoError(t, err)
			}
			got, err := g.Admit(t.Context(), line, attempt("a"), ranks(maxRank))
			if v.Strict != "accept" {
				require.NotEmpty(t, cause(err), "a verdict, not %v", err)
				return
			}
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(v.RawAdmitted, &v.Admitted))
			require.Equal(t, v.Admitted.Allocation, got.Allocation)
			require.Equal(t, v.Admitted.Epoch, got.Epoch)
			require.Equal(t, v.Admitted.Rank, got.Rank)
			require.Equal(t, v.Admitted.Nonce, got.Nonce)
			require.Equal(t, v.Signed, string(appendSigned(nil, got.Claim)))

			_, err = g.Admit(t.Context(), line, nil, ranks(maxRank))
			require.Equal(t, CauseReplayed, cause(err))
		})
	}
}

// What the issuer here makes is, byte for byte, what the upstream issuer made of the same claim.
func TestIssueMatchesUpstream(t *testing.T) {
	all := loadVectors(t)
	s := all.secret(t)
	matched := 0
	for _, v := range all.Vectors {
		line, err := hex.DecodeString(v.Line)
		require.NoError(t, err)
		c, signature, err := parse(line)
		if v.Strict != "accept" || err != nil || v.ID[0] != 'v' {
			continue
		}
		matched++
		require.Equal(t, string(line), string(s.Issue(c)), v.ID)
		require.True(t, s.verify(c, signature), v.ID)
	}
	require.Greater(t, matched, 15)
}

func TestFloatTable(t *testing.T) {
	table := loadVectors(t).Floats
	require.Len(t, table, 326)
	for _, row := range table {
		bits, err := strconv.ParseUint(row.Bits, 16, 64)
		require.NoError(t, err)
		require.Equal(t, row.Text, string(appendFloat(nil, math.Float64frombits(bits))), row.Bits)
	}
}

func TestStringTable(t *testing.T) {
	table := loadVectors(t).Chars
	require.Len(t, table, 266)
	for _, row := range table {
		require.Equal(t, row.Text, string(appendString(nil, string(row.CodePoint))), "U+%04X", row.CodePoint)
	}
}
