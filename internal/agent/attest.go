package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"

	"github.com/openai4s/hpc/credential/bundle"
	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/internal/munge"
)

// errNoMungeCommand is returned where the gateway wants MUNGE's word for whose process this is and the node has no
// program to ask for it. Trying again is no use.
var errNoMungeCommand = errors.New("the gateway wants every rank to say by MUNGE whose it is, and this node can't")

// mungeRemedy is for whoever reads the job's output.
const mungeRemedy = "MUNGE must run on every compute node; ask the site's administrators"

// attests tells whether the next hello needs an attestation: the first one, whose credential was in a file. While a
// command runs none is made, so no child of this process is in the command's way.
func (r *rank) attests() bool { return r.head.Attest == bundle.AttestMunge && !r.joined }

// canAttest says before the first dial what would only be found out at its end.
func (r *rank) canAttest() error {
	if !r.attests() {
		return nil
	}
	if _, err := exec.LookPath(munge.Command(r.head.Munge)); err != nil {
		return fmt.Errorf("%w: %w; MUNGE must be installed on every compute node, or commands in site.toml must name where munge is: ask the site's administrators, and submit again then",
			errNoMungeCommand, err)
	}
	return nil
}

// attestation is MUNGE's word for whose process this is, for this connection and this credential.
func (r *rank) attestation(ctx context.Context, credential []byte, conn net.Conn) (string, error) {
	t, ok := conn.(*tls.Conn)
	if !ok { // a bundle that says so can't be read
		return "", errors.New("an attestation is asked for and tls is off")
	}
	payload, err := wire.AttestPayload(t.ConnectionState(), credential)
	if err != nil {
		return "", err
	}
	made, err := munge.Make(ctx, r.head.Munge, payload)
	if errors.Is(err, munge.ErrNone) {
		r.noMunge.Do(func() {
			fmt.Fprintf(r.Stderr, "openai4s-agent: rank %d: %v; trying again for %s. %s\n", r.Rank, err, r.head.DialTimeout, mungeRemedy)
		})
		return "", fmt.Errorf("%w; %s", err, mungeRemedy)
	}
	return string(made), err
}
