package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
)

// harm is what happens to a connection at one byte of one way.
type harm struct {
	up   bool // on its way to the gateway
	at   int  // after so many bytes
	kind harmKind
}

type harmKind int

const (
	cut     harmKind = iota // the connection ends
	twice                   // the byte before comes once more
	flipped                 // the next byte is another one
	held                    // what follows comes late, and then the connection ends
	harmKinds
)

var errHarm = errors.New("the connection was broken by the test")

// broken is a connection that harm comes to.
type broken struct {
	net.Conn
	harm     harm
	up, down int // bytes so far
}

// passed tells how much of n more bytes passes unharmed; hit: the harm comes then.
func (b *broken) passed(up bool, sofar, n int) (left int, hit bool) {
	if up != b.harm.up || b.harm.at < sofar || b.harm.at >= sofar+n {
		return n, false
	}
	return b.harm.at - sofar, true
}

func (b *broken) Write(p []byte) (int, error) {
	left, hit := b.passed(true, b.up, len(p))
	b.up += len(p)
	if !hit {
		return b.Conn.Write(p)
	}
	sent := append([]byte{}, p...)
	switch b.harm.kind {
	case twice:
		sent = append(sent[:left+1], p[left:]...)
	case flipped:
		sent[left] ^= 0x40
	case held, cut, harmKinds:
		_, _ = b.Conn.Write(p[:left]) // it ends here anyway
		return b.end(p[left:])
	}
	if _, err := b.Conn.Write(sent); err != nil {
		return 0, err
	}
	return len(p), nil
}

// end closes the connection, after the rest has come late where that is the harm.
func (b *broken) end(rest []byte) (int, error) {
	if b.harm.kind == held {
		time.Sleep(20 * time.Millisecond)
		_, _ = b.Conn.Write(rest)
	}
	b.Close()
	return 0, errHarm
}

func (b *broken) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	left, hit := b.passed(false, b.down, n)
	b.down += n
	switch {
	case err != nil || !hit:
		return n, err
	case b.harm.kind == flipped, b.harm.kind == twice: // one byte too many is, to TLS, as good as a wrong one
		p[left] ^= 0x40
		return n, nil
	case b.harm.kind == held:
		time.Sleep(20 * time.Millisecond)
	}
	b.Close()
	return left, errHarm
}

// hardyRank is a rank as an agent is one: it keeps its attempt secret, and comes back with the credential that it was given last.
type hardyRank struct {
	addr  string
	line  []byte
	agent *wire.Agent
}

// dial goes through one connection; wrap may break it. An admitted rank says a word, which spends its credential.
func (h *hardyRank) dial(wrap func(net.Conn) net.Conn) (net.Conn, error) {
	raw, err := net.Dial("tcp", h.addr)
	if err != nil {
		return nil, err
	}
	conn := wrap(raw)
	admitted := func() error {
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		t := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}})
		conn = t
		hello, err := wire.AppendHello(h.line, *h.agent)
		if err != nil {
			return err
		}
		if _, err := t.Write(hello); err != nil {
			return err
		}
		answer, err := wire.ReadAnswer(t)
		if err != nil {
			return err
		}
		if !answer.OK {
			return errRefusedRank
		}
		h.line = []byte(answer.Resume)
		f, err := wire.JSON(wire.Status, wire.StatusReport{Seq: 1})
		if err != nil {
			return err
		}
		if err := wire.WriteFrame(t, f); err != nil {
			return err
		}
		_, err = wire.ReadFrame(t) // the acknowledgement
		return err
	}
	if err := admitted(); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// comeBack tries until it is admitted or refused. What was late of an earlier connection may take the rank's place for
// a moment, and then the next try takes it back.
func (h *hardyRank) comeBack() (c net.Conn, err error) {
	for range 10 {
		c, err = h.dial(func(c net.Conn) net.Conn { return c })
		if err == nil || errors.Is(err, errRefusedRank) {
			return c, err
		}
	}
	return nil, err
}

var errRefusedRank = errors.New("refused")

// TestHarmAtEveryByte: wherever a first registration or a coming back is broken, the rank is back with its next try, it
// is there once, and its credential helps nobody else. A usual run takes a random part of all bytes; O4S_EVERY_BYTE=1
// takes all of them.
func TestHarmAtEveryByte(t *testing.T) {
	step := 41
	if os.Getenv("O4S_EVERY_BYTE") != "" {
		step = 1
	}
	phase := rand.IntN(step)
	if text := os.Getenv("O4S_SEED"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		phase = n % step
	}
	t.Logf("every %d bytes, from byte %d: O4S_SEED=%d repeats it", step, phase, phase)
	require.NoError(t, allDescriptors())
	plain := func(c net.Conn) net.Conn { return c }
	r := newRig(t, func(c *Config) { c.Pending = 256 }).serve()

	// How long the conversations are, at least; they vary by a few bytes.
	w := r.create(2)
	var up, down int
	h := &hardyRank{addr: r.addr, line: w.lines[0][0], agent: agentOf("1", "measured")}
	for range 2 {
		counted := &broken{harm: harm{at: -1}}
		c, err := h.dial(func(c net.Conn) net.Conn { counted.Conn = c; return counted })
		require.NoError(t, err)
		c.Close()
		up, down = max(up, counted.up), max(down, counted.down)
	}
	var harms []harm
	for _, way := range []struct {
		up    bool
		bytes int
	}{{true, up}, {false, down}} {
		for at := phase; at < way.bytes; at += step {
			for kind := range harmKinds {
				harms = append(harms, harm{way.up, at, kind})
			}
		}
	}
	t.Logf("%d harms, to a first registration and to a coming back each", len(harms))
	require.Greater(t, len(harms), 100)

	// A rank is away, so that the gang stays as it is.
	w = r.create(len(harms) + 1)
	ranks := make([]*hardyRank, len(harms))
	conns := make([]net.Conn, len(harms))
	var met atomic.Int64
	each := func(do func(i int) error) {
		var wg sync.WaitGroup
		turns := make(chan struct{}, 32)
		for i := range harms {
			wg.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				assert.NoError(t, do(i), "rank %d, %+v", i, harms[i])
			})
		}
		wg.Wait()
		require.False(t, t.Failed())
	}
	// harmed breaks a connection and comes back over a good one.
	harmed := func(i int) error {
		c, err := ranks[i].dial(func(c net.Conn) net.Conn { return &broken{Conn: c, harm: harms[i]} })
		switch {
		case err == nil: // the conversation was over before its harm
			c.Close()
		case errors.Is(err, errRefusedRank) && (harms[i].kind == cut || harms[i].kind == held):
			return fmt.Errorf("a broken connection was answered: %w", err)
		default:
			met.Add(1)
		}
		conns[i], err = ranks[i].comeBack()
		return err
	}
	each(func(i int) error {
		ranks[i] = &hardyRank{addr: r.addr, line: w.lines[0][i], agent: agentOf("1", fmt.Sprint("rank ", i))}
		return harmed(i)
	})
	each(func(i int) error {
		conns[i].Close()
		return harmed(i)
	})
	require.Greater(t, met.Load(), int64(len(harms)), "most harms were met in either conversation")

	// holder is the address of the rank's one place.
	holder := func(rank int) string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if p := w.peers[rank]; p != nil {
			return p.conn.RemoteAddr().String()
		}
		return ""
	}
	each(func(i int) error {
		for deadline := time.Now().Add(10 * time.Second); holder(i) != conns[i].LocalAddr().String(); {
			if time.Now().After(deadline) {
				return errors.New("the rank isn't back in its place")
			}
			conns[i].Close()
			var err error
			if conns[i], err = ranks[i].comeBack(); err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	r.eventually("nobody else to be there", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.peers) == len(harms)
	})
	each(func(i int) error {
		thief := &hardyRank{addr: r.addr, line: w.lines[0][i], agent: agentOf("1", fmt.Sprint("thief ", i))}
		if _, err := thief.dial(plain); !errors.Is(err, errRefusedRank) {
			return fmt.Errorf("the first credential with another attempt: %w", err)
		}
		thief.line = ranks[i].line
		if _, err := thief.dial(plain); !errors.Is(err, errRefusedRank) {
			return fmt.Errorf("the resume credential with another attempt: %w", err)
		}
		return nil
	})
	for _, c := range conns {
		c.Close()
	}
}
