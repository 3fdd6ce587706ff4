package gateway

import (
	"crypto/tls"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/internal/munge"
	"github.com/openai4s/hpc/tests/cluster"
)

// BenchmarkAttest registers a whole gang without and with attestations by real MUNGE in the same run. All ranks connect
// and make theirs, here on one machine in place of their own nodes, and then say hello at once. Reported are the rates of
// both, from the first hello to the last answer, how many times longer the attested one takes, and what one attestation
// adds, in milliseconds: this is the gateway's part. whole-ratio is the same from the first dial on, the ranks' part with
// it. munge and unmunge are reached through a shell here, for their socket's sake, which costs some of it.
func BenchmarkAttest(b *testing.B) {
	if _, err := exec.LookPath("unmunge"); err != nil {
		b.Skip("no MUNGE is installed: ", err)
	}
	raiseLimit(b)
	command, unmunge := cluster.MungeCommands(b, b.TempDir(), cluster.Munge(b).Socket)
	for _, size := range []int{64, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var plain, attested, plainWhole, attestedWhole time.Duration
			for range b.N {
				whole, hello := attestGang(b, size, "", "")
				plainWhole, plain = plainWhole+whole, plain+hello
				whole, hello = attestGang(b, size, command, unmunge)
				attestedWhole, attested = attestedWhole+whole, attested+hello
			}
			ranks := float64(size * b.N)
			b.ReportMetric(ranks/plain.Seconds(), "plain/s")
			b.ReportMetric(ranks/attested.Seconds(), "attested/s")
			b.ReportMetric(attested.Seconds()/plain.Seconds(), "ratio")
			b.ReportMetric(attestedWhole.Seconds()/plainWhole.Seconds(), "whole-ratio")
			b.ReportMetric(1000*(attested-plain).Seconds()/ranks, "ms/attestation")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// attestGang registers a gang, attested if a munge command is given.
func attestGang(b *testing.B, size int, command, unmunge string) (whole, hello time.Duration) {
	r := newRig(b, func(c *Config) {
		c.Pending, c.Handshake = size+size/4, 5*time.Minute
		if command != "" {
			c.Attest, c.Unmunge = AttestMunge, unmunge
		}
	}).serve()
	defer r.halt()
	w := r.create(size)
	conns := make([]*tls.Conn, size)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	start := time.Now()
	makers := make(chan struct{}, 16) // one machine stands for all nodes
	hellos := make([][]byte, size)
	all(b, size, func(rank int) error {
		raw, err := net.Dial("tcp", r.addr)
		if err != nil {
			return err
		}
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}})
		conns[rank] = c
		if err := c.Handshake(); err != nil {
			return err
		}
		a := agentOf("7", fmt.Sprint(rank))
		if command != "" {
			payload, err := wire.AttestPayload(c.ConnectionState(), w.lines[0][rank])
			if err != nil {
				return err
			}
			makers <- struct{}{}
			made, err := munge.Make(b.Context(), command, payload)
			<-makers
			if err != nil {
				return err
			}
			a.Attest = string(made)
		}
		hellos[rank], err = wire.AppendHello(w.lines[0][rank], *a)
		return err
	})
	greeted := time.Now()
	all(b, size, func(rank int) error {
		if _, err := conns[rank].Write(hellos[rank]); err != nil {
			return err
		}
		answer, err := wire.ReadAnswer(conns[rank])
		if err == nil && !answer.OK {
			err = fmt.Errorf("refused")
		}
		return err
	})
	end := time.Now()
	r.eventually("all registered", func() bool { return r.server.counters.accepted.Load() == uint64(size) })
	return end.Sub(start), end.Sub(greeted)
}

// all does something for every rank at once.
func all(b *testing.B, size int, do func(rank int) error) {
	errs := make([]error, size)
	var wg sync.WaitGroup
	for rank := range size {
		wg.Go(func() { errs[rank] = do(rank) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(b, err)
	}
}
