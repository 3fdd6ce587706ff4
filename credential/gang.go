package credential

import (
	"context"
	"fmt"
	"time"

	"github.com/openai4s/hpc/credential/bundle"
)

// Gang is what a bundle says of the gang whose credentials it holds.
type Gang struct {
	Workload     string
	Allocation   string
	Epoch        int64
	Size         int // ranks
	RanksPerNode int
	Expires      time.Time
	Addresses    []string // host:port, tried in order
	TLS          bool
	Pins         []string
	DialTimeout  time.Duration
	Attest       string // bundle.AttestMunge, or "" for not at all
	Munge        string // path of the munge command on the nodes; "": that of the PATH
}

// IssueGang issues one credential for every rank. It returns the bundle file's bytes and the credential lines, in rank
// order.
func (g *Gatekeeper) IssueGang(ctx context.Context, o Gang) (file []byte, lines [][]byte, err error) {
	if o.Size < 1 || o.Size > bundle.MaxRanks {
		return nil, nil, fmt.Errorf("issuing for %s: %w: %d ranks, not 1 to %d", o.Allocation, ErrClaim, o.Size, bundle.MaxRanks)
	}
	claims := make([]Claim, o.Size)
	for rank := range claims {
		claims[rank] = Claim{Allocation: o.Allocation, Epoch: o.Epoch, Rank: rank, Expires: unixSeconds(o.Expires), Nonce: NewNonce()}
	}
	if lines, err = g.Issue(ctx, o.Allocation, claims...); err != nil {
		return nil, nil, err
	}
	h := bundle.Header{
		Format: bundle.Format, Workload: o.Workload, Allocation: o.Allocation, Epoch: o.Epoch, Size: o.Size, RanksPerNode: o.RanksPerNode,
		Addresses: o.Addresses, TLS: "off", Pins: o.Pins, DialTimeout: o.DialTimeout.String(),
		Attest: o.Attest, Munge: o.Munge,
	}
	if o.TLS {
		h.TLS = "on"
	}
	if file, err = bundle.Encode(h, lines); err != nil {
		return nil, nil, err
	}
	return file, lines, nil
}
