package gateway

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/gateway/gang"
	"github.com/openai4s/hpc/scheduler"
)

// TestAnyHistoryKeepsTheRules drives a record through whatever scheduler, ranks and owner may say, in any order.
func TestAnyHistoryKeepsTheRules(t *testing.T) {
	phases := []scheduler.Phase{"", scheduler.Pending, scheduler.Granted, scheduler.Releasing, scheduler.Completed, scheduler.Failed, scheduler.Cancelled}
	reasons := []scheduler.Reason{"", scheduler.TimeLimitExceeded, scheduler.NodeFailed, scheduler.OutOfMemory, scheduler.Preempted, scheduler.CommandFailed, scheduler.UserCancelled}
	outcomes := []gang.Outcome{completed, failed3, undecided, lostRank, atWall, noShow}
	rapid.Check(t, func(t *rapid.T) {
		r := submittedRecord()
		r.Request.Restarts, r.Attempts[0].Epochs = 2, 3
		r.Recover = rapid.IntRange(0, 1).Draw(t, "recover")
		now := machineNow
		reported, contrary := false, false // every rank of this epoch reported success; the scheduler said otherwise
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			before := *r
			connected := rapid.Bool().Draw(t, "connected")
			switch rapid.IntRange(0, 8).Draw(t, "op") {
			case 0, 1:
				o := scheduler.Observation{
					Phase: rapid.SampledFrom(phases).Draw(t, "phase"), Reason: rapid.SampledFrom(reasons).Draw(t, "reason"),
					Requeued: rapid.Bool().Draw(t, "requeued"), Restarts: rapid.IntRange(0, 2).Draw(t, "restarts"), Verbatim: "STATE",
				}
				if o.Phase == scheduler.Completed {
					o.Reason = ""
				}
				if o.Phase.Terminal() && o.Phase != scheduler.Completed && r.Ending == nil {
					contrary = true
				}
				r.observed(o, now)
			case 2:
				if r.Phase == scheduler.Granted && r.Release == nil {
					r.released(release{Members: make([]gang.Member, 2)}, now)
				}
			case 3:
				if r.Release != nil && r.Outcome == nil && !r.Phase.Terminal() {
					o := rapid.SampledFrom(outcomes).Draw(t, "outcome")
					r.gangOver(o, true, false)
					reported = r.Outcome.Cause == gang.Completed
				}
			case 4:
				r.granted()
			case 5:
				was := r.Epoch
				if r.advance(rapid.Int64Range(0, 2).Draw(t, "epoch"), now); r.Epoch > was {
					reported, contrary = false, false
				}
			case 6:
				r.submitted(api.Submission{Outcome: rapid.SampledFrom([]scheduler.Outcome{scheduler.Created, scheduler.Unknown, scheduler.Rejected}).Draw(t, "said"), Job: scheduler.JobID{ID: "7"}}, now)
			case 7:
				if r.Absent.IsZero() {
					r.Absent = now
				}
			case 8:
				if r.Outcome == nil && rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
					r.Cancel = "user"
				}
			}
			r.conclude(connected, absence, now)

			if before.Phase.Terminal() && (r.Phase != before.Phase || r.Reason != before.Reason || r.Ended != before.Ended || r.Result != before.Result) {
				t.Fatalf("a terminal phase changed: %s %s to %s %s", before.Phase, before.Reason, r.Phase, r.Reason)
			}
			if r.Epoch < before.Epoch {
				t.Fatalf("the epoch fell from %d to %d", before.Epoch, r.Epoch)
			}
			if r.Version < before.Version {
				t.Fatalf("the version fell")
			}
			if r.Phase != before.Phase && r.Version == before.Version {
				t.Fatalf("%s became %s, and the version doesn't show it", before.Phase, r.Phase)
			}
			if r.Phase == scheduler.Completed && (!reported || contrary) {
				t.Fatalf("completed with every rank's success %v, contrary word %v", reported, contrary)
			}
			if r.Phase.Terminal() && r.Ended.IsZero() {
				t.Fatalf("over at no time")
			}
			if r.Resubmit && r.Phase != scheduler.Submitting {
				return // the owner's turn: a new allocation starts afresh
			}
		}
	})
}
