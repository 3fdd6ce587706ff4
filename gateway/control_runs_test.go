package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/scheduler"
)

func TestCancelInEveryPhase(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(r *rig, w *workload)
		phase  scheduler.Phase // right after the call
	}{
		{"submitting", func(*rig, *workload) {}, scheduler.Releasing},
		{"pending", func(_ *rig, w *workload) { w.say(scheduler.Observation{Phase: scheduler.Pending}) }, scheduler.Releasing},
		{"forming", func(r *rig, w *workload) { r.join(w, 0, 0, "7") }, scheduler.Releasing},
		{"active", func(r *rig, w *workload) { r.join(w, 0, 0, "7"); r.join(w, 0, 1, "7") }, scheduler.Releasing},
		{"asked twice", func(_ *rig, w *workload) { w.cancel("user", w.uid) }, scheduler.Releasing},
		{"a recovery that was not submitted", func(_ *rig, w *workload) {
			w.edit(func(rec *record) { rec.Resubmit = true; rec.touch() })
		}, scheduler.Cancelled},
		{"a recovery of a gang that lost a rank", func(_ *rig, w *workload) {
			w.edit(func(rec *record) {
				rec.Resubmit, rec.Outcome, rec.Over = true, &gang.Outcome{Cause: gang.RankLost}, true
				rec.touch()
			})
		}, scheduler.Cancelled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t).serve()
			w := r.create(2)
			if tt.name != "submitting" {
				w.edit(func(rec *record) {
					rec.submitted(api.Submission{Outcome: scheduler.Created, Job: job7}, r.clock.now())
				})
			}
			tt.before(r, w)
			status, body := r.as(w.uid, "POST", "/v1/workloads/"+string(w.id)+"/cancel", nil)
			assert.Equal(t, 202, status)
			var c api.Cancelled
			decodeJSON(t, []byte(body), &c)
			assert.Equal(t, tt.phase, c.Workload.Phase)
			assert.Equal(t, scheduler.UserCancelled, c.Workload.Reason)
			if !c.Workload.Phase.Terminal() {
				fresh := r.dial().hello(w.lines[0][1], agentOf("7", "b"))
				assert.Equal(t, refused, fresh.line(), "fenced by the time of the answer")
				w.edit(func(rec *record) { rec.Attempts[0].Job = job7 })
				w.say(scheduler.Observation{Phase: scheduler.Cancelled})
				r.clock.advance(settleTime) // ranks that are still connected might report
			}
			r.eventually("cancelled", func() bool { return w.phase() == scheduler.Cancelled })
			status, body = r.as(w.uid, "POST", "/v1/workloads/"+string(w.id)+"/cancel", nil)
			assert.Equal(t, 202, status, "of one that is over: nothing to do")
			decodeJSON(t, []byte(body), &c)
			assert.Equal(t, scheduler.Cancelled, c.Workload.Phase)
			assert.False(t, c.ByCaller)
		})
	}
	t.Run("completed stays completed", func(t *testing.T) {
		r := newRig(t).serve()
		w := r.create(1)
		c, _ := r.join(w, 0, 0, "7")
		c.exit(wire.ExitReport{})
		w.say(scheduler.Observation{Phase: scheduler.Completed, ExitCode: code(0)})
		r.as(w.uid, "POST", "/v1/workloads/"+string(w.id)+"/cancel", nil)
		assert.Equal(t, scheduler.Completed, w.phase())
	})
	t.Run("by an administrator", func(t *testing.T) {
		r := newRig(t).serve()
		made := r.made(alice)
		_, body := r.as(0, "POST", "/v1/workloads/"+string(made.Workload.ID)+"/cancel", nil)
		var c api.Cancelled
		decodeJSON(t, []byte(body), &c)
		assert.Equal(t, scheduler.AdminCancelled, c.Workload.Reason)
	})
}

func TestLogs(t *testing.T) {
	r := newRig(t).serve()
	cli := r.control()
	w := r.create(2)
	a, _ := r.join(w, 0, 0, "7")
	b, _ := r.join(w, 0, 1, "7")
	out := func(c *client, text string) {
		require.NoError(t, wire.WriteFrame(c.conn, wire.Frame{Type: wire.Stdout, Payload: []byte(text)}))
	}
	out(a, "one\ntw")
	out(b, "eins\n")
	logs := func(rank int) string {
		var text strings.Builder
		require.NoError(t, cli.Logs(t.Context(), w.id, rank, false, &text))
		return text.String()
	}
	r.eventually("both", func() bool { return strings.Contains(logs(-1), "1: eins\n") && strings.Contains(logs(-1), "0: tw\n") })
	assert.Equal(t, "one\ntw", logs(0))

	read, write := io.Pipe()
	over := make(chan error, 1)
	go func() {
		over <- cli.Logs(t.Context(), w.id, -1, true, write)
		write.Close()
	}()
	got := make(chan string, 100)
	go func() {
		buf := make([]byte, 1<<20)
		for {
			n, err := read.Read(buf)
			if err != nil {
				close(got)
				return
			}
			got <- string(buf[:n])
		}
	}()
	var text string
	wait := func(want string) {
		t.Helper()
		timeout := time.After(10 * time.Second)
		for !strings.Contains(text, want) {
			select {
			case s := <-got:
				text += s
			case <-timeout:
				t.Fatalf("%q never came in %q", want, text)
			}
		}
	}
	wait("0: one\n")
	out(a, "o\n")
	wait("0: two\n")
	// More than a copy holds at once: what is dropped is told.
	for range 4 {
		out(b, strings.Repeat("y", 100<<10)+"\n")
	}
	out(b, "last\n")
	wait("1: last\n")
	a.exit(wire.ExitReport{})
	b.exit(wire.ExitReport{})
	w.say(scheduler.Observation{Phase: scheduler.Completed, ExitCode: code(0)})
	require.NoError(t, <-over, "following ends with the workload")
	assert.Contains(t, logs(1), "bytes dropped]")

	status, _ := r.as(w.uid, "GET", "/v1/workloads/"+string(w.id)+"/logs?rank=2", nil)
	assert.Equal(t, 400, status)
	r.clock.advance(pastKept + time.Minute)
	r.eventually("gone", func() bool {
		status, _ := r.as(w.uid, "GET", "/v1/workloads/"+string(w.id)+"/logs", nil)
		return status == http.StatusGone
	})
	assert.Equal(t, int64(logTotal), r.server.logBytes.left.Load(), "the memory is given back")
	status, body := r.as(w.uid, "GET", "/v1/workloads/"+string(w.id)+"/events", nil)
	assert.Equal(t, 200, status)
	assert.Contains(t, body, "COMPLETED")
}
