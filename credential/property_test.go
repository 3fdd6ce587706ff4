package credential

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// world drives a fence as daemons, agents, thieves and crashes do, and remembers what may never be.
type world struct {
	dir   string
	store *faultyLedger
	gate  *Gatekeeper
	now   float64

	issued   []Claim
	owner    map[string]string  // nonce → the attempt it was admitted for
	used     map[string]bool    // nonce → a byte came, in this daemon's life
	floors   map[string]int64   // as promised by Raise
	promised map[string]float64 // allocation → largest expiry issued
}

func (w *world) open(t *rapid.T) {
	db, err := bbolt.Open(filepath.Join(w.dir, "state.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	w.store = &faultyLedger{DB: db}
	f, err := openFence(w.store)
	if err != nil {
		t.Fatal(err)
	}
	w.gate = &Gatekeeper{Secret: testSecret("a"), Fence: f, Now: func() time.Time { return at(w.now)() }}
	w.used = map[string]bool{}
}

// admit is Admit without the goroutine of Run: the same steps, the burner called by hand.
func (w *world) admit(c Claim, a Attempt) (Admission, error) {
	g := w.gate
	if err := g.Fence.Healthy(); err != nil {
		return Admission{}, err
	}
	parsed, signature, err := parse(g.Secret.Issue(c))
	if err != nil || !g.Secret.verify(parsed, signature) {
		return Admission{}, errors.New("a credential of ours doesn't verify")
	}
	if c.Expires <= w.now || g.Fence.forgot(c.Expires) {
		return Admission{}, &Refusal{CauseExpired}
	}
	n, _ := resumeNumber(c.Nonce)
	b := &burn{claim: c, resume: n, attempt: a, done: make(chan struct{})}
	g.Fence.burnAll([]*burn{b})
	<-b.done
	return Admission{Claim: c, Again: b.judged.again, Resume: n, Next: b.judged.next}, b.err
}

func TestNeverTwoAttempts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "fence")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w := &world{dir: dir, now: fixedNow, owner: map[string]string{}, floors: map[string]int64{}, promised: map[string]float64{}}
		w.open(t)
		defer func() { w.store.Close() }()

		allocations := rapid.SampledFrom([]string{"alloc_1", "alloc_2"})
		attempts := rapid.SampledFrom([]string{"", "a", "b"})
		t.Repeat(map[string]func(*rapid.T){
			"issue": func(t *rapid.T) {
				c := Claim{
					Allocation: allocations.Draw(t, "allocation"),
					Epoch:      int64(rapid.IntRange(0, 3).Draw(t, "epoch")),
					Rank:       rapid.IntRange(0, 1).Draw(t, "rank"),
					Expires:    w.now + float64(rapid.IntRange(1, 3*rememberStep).Draw(t, "ttl")),
					Nonce:      fmt.Sprintf("n%d", len(w.issued)),
				}
				if rapid.Bool().Draw(t, "resume") {
					c.Nonce = fmt.Sprintf("resume.%d.%d", rapid.IntRange(1, 5).Draw(t, "n"), len(w.issued))
				}
				if err := w.gate.Fence.Remember(t.Context(), c.Allocation, c.Expires); err != nil {
					return
				}
				w.promised[c.Allocation] = max(w.promised[c.Allocation], c.Expires)
				w.issued = append(w.issued, c)
			},
			"present": func(t *rapid.T) {
				if len(w.issued) == 0 {
					t.Skip("nothing issued")
				}
				c := rapid.SampledFrom(w.issued).Draw(t, "credential")
				who := attempts.Draw(t, "attempt")
				var a Attempt
				if who != "" {
					a = attempt(who)
				}
				got, err := w.admit(c, a)
				if err != nil {
					return
				}
				switch owner, burned := w.owner[c.Nonce]; {
				case burned && (owner != who || who == ""):
					t.Fatalf("%v admitted for %q and %q", c, owner, who)
				case !burned && got.Again:
					t.Fatalf("%v is said to come again", c)
				case w.used[c.Nonce]:
					t.Fatalf("%v admitted after its use", c)
				case c.Epoch < w.floors[c.Allocation]:
					t.Fatalf("%v admitted below floor %d", c, w.floors[c.Allocation])
				}
				w.owner[c.Nonce] = who
			},
			"use": func(t *rapid.T) {
				if len(w.issued) == 0 {
					t.Skip("nothing issued")
				}
				c := rapid.SampledFrom(w.issued).Draw(t, "credential")
				if _, burned := w.owner[c.Nonce]; burned {
					w.gate.Fence.Used(c)
					w.used[c.Nonce] = true
				}
			},
			"raise": func(t *rapid.T) {
				allocation := allocations.Draw(t, "allocation")
				floor := int64(rapid.IntRange(0, 3).Draw(t, "floor"))
				if err := w.gate.Fence.Raise(t.Context(), allocation, floor); err == nil {
					w.floors[allocation] = max(w.floors[allocation], floor)
				}
			},
			"prune": func(t *rapid.T) {
				w.gate.Fence.Prune(t.Context(), at(w.now)())
			},
			"time passes": func(t *rapid.T) {
				w.now += float64(rapid.IntRange(1, 2*rememberStep).Draw(t, "seconds"))
			},
			"clock set back": func(t *rapid.T) {
				w.now -= float64(rapid.IntRange(1, rememberStep).Draw(t, "seconds"))
			},
			"restart": func(t *rapid.T) {
				w.store.Close()
				w.open(t)
			},
			"crash after a commit": func(t *rapid.T) {
				if len(w.issued) == 0 {
					t.Skip("nothing issued")
				}
				c := rapid.SampledFrom(w.issued).Draw(t, "credential")
				_, known := w.owner[c.Nonce]
				commits := w.store.commits.Load()
				w.store.after.Store(failing(errors.New("crash")))
				_, err := w.admit(c, attempt("a"))
				if err == nil && !known {
					t.Fatal("admitted without a commit")
				}
				if w.store.commits.Load() > commits && !known {
					w.owner[c.Nonce] = "a" // durable, though nobody was told
				}
				w.store.Close()
				w.open(t)
			},
			"": func(t *rapid.T) {
				for allocation, floor := range w.floors {
					got := w.gate.Fence.Floor(allocation)
					if got < floor && w.gate.Fence.horizon < w.promised[allocation] {
						t.Fatalf("floor of %s is %d after %d", allocation, got, floor)
					}
					if got < floor { // forgotten with its last credential: all of them are refused by their expiry
						w.floors[allocation] = got
					}
				}
			},
		})
	})
}
