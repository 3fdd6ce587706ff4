package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/openai4s/hpc/credential"
	"github.com/openai4s/hpc/gateway/wire"
)

// AttestMunge in a Config: whose process a rank is, MUNGE has to say.
const AttestMunge = "munge"

// causeAttest: who holds the credential isn't shown to be who it was made for.
const causeAttest = "attest"

// attestWait bounds how long an attestation waits for its turn and for MUNGE. It is half of what MUNGE gives a
// credential to live, so that none becomes too old by waiting here.
const attestWait = 30 * time.Second

// checkAttest refuses a configuration whose attestations would prove nothing.
func checkAttest(c Config) error {
	switch {
	case c.Attest != "" && c.Attest != AttestMunge:
		return fmt.Errorf("making the gateway: %q is no attestation", c.Attest)
	case c.Attest != "" && c.TLSMode == "off":
		return errors.New("making the gateway: an attestation is bound to TLS, which is off")
	}
	return nil
}

// attest holds a rank's credential against the MUNGE credential beside it, which must be of the workload's owner and
// made for this connection. It comes before the burn: who isn't the owner spends nothing. It comes after signature and
// expiry, and after what is refused anyway, so that strangers don't keep MUNGE busy. Where MUNGE has no opinion the
// peer gets no answer, and comes back.
//
// A resume credential is nobody's but the admitted process's: it never was in a file.
func (s *Server) attest(ctx context.Context, conn net.Conn, h wire.Hello, c credential.Claim, l *live, d *dialIn) error {
	if s.cfg.Attest == "" || c.IsResume() {
		return nil
	}
	if _, err := l.judge(c, nil); err != nil { // nil: it binds nothing yet
		return err
	}
	refuse := func(why string) error {
		d.Attest = why
		return &credential.Refusal{Cause: causeAttest}
	}
	secure, ok := conn.(*tls.Conn)
	if !ok || h.Agent == nil || h.Agent.Attest == "" {
		return refuse("missing")
	}
	said := []byte(h.Agent.Attest)
	h.Agent.Attest = "" // the rest stays for as long as the connection
	payload, err := wire.AttestPayload(secure.ConnectionState(), h.Credential())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attestWait)
	defer cancel()
	who, err := s.attester.verify(ctx, said, payload)
	bad := (*badMunge)(nil)
	switch {
	case errors.As(err, &bad):
		return refuse(bad.cause)
	case errors.Is(err, errMungeDown):
		s.attester.sayDown(s.log, err, "no rank is admitted: look at munged on this host")
		return err
	case err != nil:
		return fmt.Errorf("verifying the attestation: %w", err)
	case who.UID != l.uid:
		return refuse(fmt.Sprintf("uid %d of %s", who.UID, who.Host))
	}
	return nil
}
