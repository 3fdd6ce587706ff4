package agent

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/openai4s/hpc/gateway/wire"
)

// Sequence numbers of the two reports that are resent until acknowledged.
const (
	seqStarted = 1
	seqExit    = 2
)

const (
	// ackWait is how long a rank whose command ended waits for the gateway.
	ackWait = 30 * time.Second
	// lastWait is how long it waits for the last order once the scheduler ends the job.
	lastWait = 5 * time.Second
	// termEcho is how long after its command a scheduler's signal may reach the agent.
	termEcho = 2 * time.Second
)

// signalled acts on a signal. The scheduler's TERM and its warning end the command.
func (r *rank) signalled(s os.Signal) {
	switch s {
	case syscall.SIGCHLD:
		if r.command != nil && r.exit == nil {
			reap(r.command.cmd.Process.Pid, r.command.guard.pid())
		}
	case syscall.SIGWINCH: // the warning: one that a program without a handler ignores, as the command gets it too
		r.stop(wire.CauseWalltime)
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
		if r.staying {
			r.leaveWith(r.code)
			return
		}
		r.stop(wire.CauseScheduler)
		if r.exit != nil && (r.leave == nil || !r.acked) {
			r.leave = time.After(lastWait)
		}
	}
}

// stop ends the command, or the rank itself where no command was started.
func (r *rank) stop(cause string) {
	switch {
	case r.exit != nil:
	case r.held != nil:
		r.command.cause = cause
		r.release()
	case r.command != nil:
		r.command.terminate(cause, r.command.grace)
		r.kill = time.After(time.Until(r.command.kill))
	default:
		r.finish(&wire.ExitReport{Seq: seqExit, Code: 128 + int(syscall.SIGTERM), Cause: cause, Message: "it had not started"})
	}
}

// arrived acts on a frame of the gateway, or on the end of the connection.
func (r *rank) arrived(a arrival) {
	if a.link != r.link {
		return // of a connection that was given up
	}
	if a.err != nil {
		r.link.close()
		if r.short++; time.Since(r.link.since) > shortLink {
			r.short = 0
		}
		r.link = nil
		r.current.Store(nil)
		if r.done != nil {
			return
		}
		if r.exit != nil && r.leave == nil {
			r.leave = time.After(ackWait)
		}
		r.startDial()
		return
	}
	switch a.frame.Type {
	case wire.Start:
		var o wire.StartOrder
		if a.frame.Decode(&o) == nil && o.ID != r.startID && r.exit == nil {
			r.startID = o.ID
			r.start(o)
		}
	case wire.Stop:
		var o wire.StopOrder
		if a.frame.Decode(&o) == nil {
			r.stopOrdered(o)
		}
	case wire.Signal:
		var o wire.SignalOrder
		if a.frame.Decode(&o) == nil && r.command != nil && r.exit == nil && r.held == nil {
			r.command.signal(syscall.Signal(o.Signal))
		}
	case wire.Ack:
		var o wire.AckOrder
		if a.frame.Decode(&o) == nil {
			r.acknowledged(o.Seq)
		}
	case wire.Credential:
		r.credential = a.frame.Payload
	}
}

func (r *rank) acknowledged(seq uint64) {
	switch seq {
	case seqStarted:
		r.started = nil
	case seqExit:
		if r.exit == nil {
			return
		}
		r.acked = true
		if r.exit.Cause != wire.CauseScheduler {
			r.leave = nil // the last order comes when every rank has ended
		}
	}
}

// start runs the command of the start order.
func (r *rank) start(o wire.StartOrder) {
	r.order = o
	if err := r.checkInputs(); err != nil {
		r.notStarted(&wire.ExitReport{Code: codeNotExecutable, Message: err.Error()})
		return
	}
	env, err := r.environment(o)
	if err != nil {
		r.notStarted(&wire.ExitReport{Code: codeNotExecutable, Message: err.Error()})
		return
	}
	out := &output{stdout: r.Stdout, stderr: r.Stderr, copy: r.copyOut(), progress: r.progress()}
	c, report := startCommand(o, env, out, r.task())
	if report != nil {
		r.notStarted(report)
		return
	}
	r.command, r.results = c, c.done
	r.started = &wire.StatusReport{Seq: seqStarted, State: "started", PID: c.cmd.Process.Pid}
	r.report(wire.Status, r.started)
	if warn := time.Duration(o.WarnMS) * time.Millisecond; warn > 0 && !r.Deadline.IsZero() {
		r.warn = time.After(time.Until(r.Deadline.Add(-warn)))
	}
}

// task is the mark of the command's processes, "" where this process can't be started again as their guard.
func (r *rank) task() string {
	if !r.Guarded {
		return ""
	}
	return fmt.Sprintf("%s.%d.%d", r.head.Workload, r.Epoch, r.Rank)
}

// notStarted tells why there is no command, in the job's own output too.
func (r *rank) notStarted(report *wire.ExitReport) {
	report.Seq = seqExit
	fmt.Fprintf(r.Stderr, "openai4s-agent: rank %d: %s\n", r.Rank, report.Message)
	r.finish(report)
}

// ended takes the command's end. A scheduler's signal reaches the command as well as its agent, in either order: an end
// that looks like one is kept for a moment, so that a cancel or a requeue isn't told as the command's own failure.
func (r *rank) ended(e result) {
	r.results, r.kill, r.warn = nil, nil, nil
	if r.command.cause == "" && likeTerm(e) {
		r.held, r.echo = &e, time.After(termEcho)
		return
	}
	r.told(e)
}

// likeTerm tells whether a command may have ended of a scheduler's signal.
func likeTerm(e result) bool {
	const term, interrupt = int(syscall.SIGTERM), int(syscall.SIGINT)
	return e.signal == term || e.signal == interrupt || e.code == 128+term || e.code == 128+interrupt
}

// release reports the end that was kept.
func (r *rank) release() {
	e := *r.held
	r.held, r.echo = nil, nil
	r.told(e)
}

func (r *rank) told(e result) {
	r.finish(&wire.ExitReport{Seq: seqExit, Code: e.code, Signal: e.signal, Cause: r.command.cause, Message: e.message})
}

// finish reports the rank's end and waits for the acknowledgement.
func (r *rank) finish(e *wire.ExitReport) {
	if e.Signal != 0 {
		e.Code = 0
	}
	r.exit = e
	if r.outcast {
		r.leaveAlone()
		return
	}
	r.report(wire.Exit, e)
	r.leave = time.After(ackWait)
	if e.Cause == wire.CauseScheduler {
		r.leave = time.After(lastWait)
	}
	if !r.joined && r.link == nil && e.Cause == wire.CauseScheduler {
		r.leaveAlone() // it never came in: nobody waits for its report
	}
}

// stopOrdered: the command is to end, or everything of the gang is over.
func (r *rank) stopOrdered(o wire.StopOrder) {
	if !o.Done {
		if r.held != nil { // it ended before the order
			r.release()
			return
		}
		if r.command != nil && r.exit == nil {
			r.command.terminate(wire.CauseOrder, time.Duration(o.GraceMS)*time.Millisecond)
			r.kill = time.After(time.Until(r.command.kill))
			return
		}
		r.stop(wire.CauseOrder)
		return
	}
	if r.done != nil || r.exit == nil {
		return
	}
	r.done = &o
	r.publish(o)
	r.leaveTold(o)
}

// ownCode is the exit code of the rank's own command, as a shell shows it.
func (r *rank) ownCode() int {
	switch {
	case r.exit == nil:
		return exitBootstrap
	case r.exit.Signal != 0:
		return 128 + r.exit.Signal
	}
	return r.exit.Code
}

// copyOut gives the output goroutines a way to the link of the moment.
func (r *rank) copyOut() func(wire.Frame) {
	return func(f wire.Frame) {
		if l := r.current.Load(); l != nil {
			l.sendCopy(f)
		}
	}
}

func (r *rank) progress() func(wire.ProgressReport) {
	return func(p wire.ProgressReport) {
		if l := r.current.Load(); l != nil {
			if f, err := wire.JSON(wire.Progress, p); err == nil {
				l.sendCopy(f)
			}
		}
	}
}
