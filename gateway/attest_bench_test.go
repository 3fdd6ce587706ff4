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
	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/internal/munge"
	"github.com/openai4s/hpc/tests/cluster"
)

// BenchmarkAttest registers a whole gang without and with attestations by real MUNGE in the same run. All ranks connect,
// make theirs, and then say hello at once. Reported are the rates of both from the first dial to the last answer, and how
// many times longer it takes with attestations; that ranks ask MUNGE is left out of these, as they do so on their own
// nodes, and whole-ratio has it, all on this machine and through a shell for the socket's sake. Then what one attestation
// costs the gateway, in milliseconds by the clock and of a processor, munged's own not counted.
func BenchmarkAttest(b *testing.B) {
	if _, err := exec.LookPath("unmunge"); err != nil {
		b.Skip("no MUNGE is installed: ", err)
	}
	raiseLimit(b)
	socket := cluster.Munge(b).Socket
	command, _ := cluster.MungeCommands(b, b.TempDir(), socket)
	for _, size := range []int{64, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var plain, attested registered
			for range b.N {
				plain.add(attestGang(b, size, "", ""))
				attested.add(attestGang(b, size, command, socket))
			}
			ranks := float64(size * b.N)
			more := attested.hello - plain.hello
			b.ReportMetric(ranks/plain.whole.Seconds(), "plain/s")
			b.ReportMetric(ranks/(plain.whole+more).Seconds(), "attested/s")
			b.ReportMetric((plain.whole+more).Seconds()/plain.whole.Seconds(), "ratio")
			b.ReportMetric(attested.whole.Seconds()/plain.whole.Seconds(), "whole-ratio")
			b.ReportMetric(1000*more.Seconds()/ranks, "ms/attestation")
			b.ReportMetric(1000*(attested.cpu-plain.cpu).Seconds()/ranks, "cpu-ms/attestation")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// registered is how long gangs took from the first dial, and from the first hello, and what of it a processor worked.
type registered struct{ whole, hello, cpu time.Duration }

func (r *registered) add(more registered) {
	r.whole, r.hello, r.cpu = r.whole+more.whole, r.hello+more.hello, r.cpu+more.cpu
}

// worked is the processors' time of this process and of its children that ended.
func worked(b *testing.B) time.Duration {
	var sum int64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		require.NoError(b, unix.Getrusage(who, &u))
		sum += u.Utime.Nano() + u.Stime.Nano()
	}
	return time.Duration(sum)
}

// attestGang registers a gang, attested if a munge command is given.
func attestGang(b *testing.B, size int, command, socket string) registered {
	r := newRig(b, func(c *Config) {
		c.Pending, c.Handshake = size+size/4, 5*time.Minute
		if command != "" {
			c.Attest = AttestMunge
		}
	})
	r.server.attester = newUnmunger("", "--socket="+socket)
	r.serve()
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
	greeted, before := time.Now(), worked(b)
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
	end, after := time.Now(), worked(b)
	r.eventually("all registered", func() bool { return r.server.counters.accepted.Load() == uint64(size) })
	return registered{whole: end.Sub(start), hello: end.Sub(greeted), cpu: after - before}
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
