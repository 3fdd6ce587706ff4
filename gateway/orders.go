package gateway

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/gateway/wire"
)

// release gives every rank its start order at once. What a restarted gateway needs is stored before the first order
// leaves.
func (l *live) release(now time.Time) {
	size := l.gang.Size()
	rel := release{Members: make([]gang.Member, size)}
	for r := range size {
		rel.Members[r] = l.gang.Member(r)
	}
	rel.MasterAddr, rel.MasterPort = master(rel.Members)
	l.rec.released(rel, now)
	l.gang.Release(now)
	l.save()
	for _, p := range l.peers {
		l.sendStart(p)
	}
}

// defaultMasterPort is told where rank 0 named no free port.
const defaultMasterPort = 29500

// master is the address and port that rank 0 can be met at. It is never a node's name, which not every node may
// resolve, and loopback only if every rank's address is.
func master(members []gang.Member) (string, int) {
	addr, port := members[0].Address, members[0].FreePort
	if port == 0 {
		port = defaultMasterPort
	}
	if a, err := netip.ParseAddr(addr); err == nil && a.IsLoopback() {
		for _, m := range members {
			if b, err := netip.ParseAddr(m.Address); err == nil && !b.IsLoopback() {
				return m.Address, port // rank 0 shares this machine's other address
			}
		}
	}
	return addr, port
}

// sendStart sends a rank its start order.
func (l *live) sendStart(p *peer) {
	if p.agent == nil {
		return
	}
	if l.start == nil {
		start, err := l.srv.unseal(l.rec.ID)
		if err != nil {
			l.srv.log.Error().Err(err).Str("workload", string(l.rec.ID)).Msg("the start order can't be read; the workload is ended")
			now := l.srv.now()
			l.act(l.gang.Stop(gang.Outcome{Cause: gang.Stopped, Code: 1, Rank: -1, Message: "the start order was lost"}, now), now)
			return
		}
		l.start = &start
	}
	if l.hosts == "" {
		l.hosts = hostlist(l.nodeNames())
	}
	req, rel := l.rec.Request, l.rec.Release
	order := wire.StartOrder{
		ID: "start-" + strconv.FormatInt(l.rec.Epoch, 10), Argv: l.start.Argv, Setup: l.start.Setup, Env: l.start.Env, Secrets: l.start.Secrets,
		Workdir: req.Workdir, Hosts: l.hosts, PerNode: req.RanksPerNode, Size: l.gang.Size(),
		LocalRank: p.rank % req.RanksPerNode, NodeRank: p.rank / req.RanksPerNode,
		MasterAddr: rel.MasterAddr, MasterPort: rel.MasterPort,
		GraceMS: l.grace().Milliseconds(), WarnMS: req.Signal.BeforeWalltime.Milliseconds(), TTY: req.TTY, Session: req.Kind == "session",
	}
	for _, in := range l.rec.Inputs {
		order.Inputs = append(order.Inputs, wire.Input{Path: in.Path, Name: in.Name, SHA256: in.SHA256, Size: in.Size})
	}
	if p.rank == 0 {
		order.Publish, order.Ports = l.rec.Outputs.Publish, l.rec.Outputs.Ports
	}
	p.order(wire.Start, order)
}

// nodeNames lists the nodes' names in node order, as the ranks gave them.
func (l *live) nodeNames() []string {
	per := l.rec.Request.RanksPerNode
	names := make([]string, 0, l.rec.Request.Nodes)
	for n := range l.rec.Request.Nodes {
		names = append(names, l.gang.Member(n*per).Host)
	}
	return names
}

// stopOrder tells ranks to end their commands.
func (l *live) stopOrder() wire.StopOrder {
	o := wire.StopOrder{ID: "stop-" + strconv.FormatInt(l.rec.Epoch, 10), Reason: "the scheduler ends the job", ExitCode: 143, GraceMS: l.grace().Milliseconds()}
	if out := l.gang.Outcome(); out != nil {
		reason, text := l.rec.words(*out)
		o.Reason, o.ExitCode = text, out.Code
		if text == "" {
			o.Reason = string(reason)
		}
	}
	return o
}

const (
	// leaderWait bounds how long the rank that leaves last waits for the others to be gone.
	leaderWait = 10 * time.Second
)

// dismiss tells every rank but the last that all is over; dismissLast tells the last one.
func (l *live) dismiss(now time.Time) {
	if l.overSince.IsZero() {
		l.overSince = now
	}
	leader := l.leader()
	l.lastDone = now.Add(leaderWait)
	for r, p := range l.peers {
		if r != leader {
			l.leave(p, false)
		}
	}
	l.dismissLast(now)
}

// leader is the rank that leaves last: rank 0, which publishes, or the lowest that is still there. -1 for none.
func (l *live) leader() int {
	leader := -1
	for r := range l.peers {
		if leader < 0 || r < leader {
			leader = r
		}
	}
	return leader
}

func (l *live) dismissLast(now time.Time) {
	if l.gang.State() != gang.Done || l.lastDone.IsZero() || l.dismissed {
		return
	}
	if leader := l.leader(); leader >= 0 && (len(l.peers) == 1 || now.After(l.lastDone)) {
		l.dismissed = true
		l.leave(l.peers[leader], true)
	}
}

// leave tells one rank that the gang is over. The last one fails its launcher where ranks are missing, so that what
// never came or was lost doesn't keep the job alive.
func (l *live) leave(p *peer, last bool) {
	out := l.gang.Outcome()
	if out == nil || p.agent == nil {
		p.close()
		return
	}
	o := l.stopOrder()
	o.ID, o.Done, o.ExitCode = fmt.Sprintf("done-%d", l.rec.Epoch), true, out.Code
	o.Fail = last && len(out.Missing) > 0
	o.Stay = last && out.Cause == gang.Stopped
	switch out.Cause {
	case gang.Completed:
		o.Status = "succeeded"
	case gang.Stopped, gang.Undecided:
		o.Status = "cancelled"
	default:
		o.Status = "failed"
	}
	if out.Cause != gang.Completed {
		o.Error = o.Reason
	}
	p.order(wire.Stop, o)
}
