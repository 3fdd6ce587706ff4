package credential

import "crypto/subtle"

// burn is one credential on its way through the burner.
type burn struct {
	claim   Claim
	resume  uint64
	attempt Attempt

	done   chan struct{} // closed when judged and err are set
	judged judgement
	err    error // nil: burned; *Refusal; or an ErrFence
}

// judgement is what one burn comes to inside its transaction. It counts only once that has committed.
type judgement struct {
	cause string // why it is refused, "" where it is not
	again bool
	next  uint64 // n for the rank's next resume credential
	wrote bool
}

// judge decides one burn by what the transaction sees, the earlier burns of the batch included, and writes it down.
// An error is damage.
func (b *burn) judge(t tables, wasUsed func(Claim) bool) (judgement, error) {
	c := b.claim
	allocation := allocationKey(c.Allocation)

	// Again, in here: Prune or Raise may have come between the first look and this one.
	horizon, err := t.horizon()
	if err != nil {
		return judgement{}, err
	}
	if c.Expires <= horizon {
		return judgement{cause: CauseExpired}, nil
	}
	record, err := t.allocation(allocation)
	if err != nil {
		return judgement{}, err
	}
	if c.Epoch < record.floor {
		return judgement{cause: CauseStaleEpoch}, nil
	}

	var last *use
	if v := t.ranks.Get(rankKey(c)); v != nil {
		u, err := decodeUse(v)
		if err != nil {
			return judgement{}, err
		}
		last = &u
	}
	key := burnedKey(c)
	if v := t.burned.Get(key); v != nil {
		first, err := decodeUse(v)
		if err != nil {
			return judgement{}, err
		}
		return b.presentedAgain(first, last, wasUsed), nil
	}
	if cause := b.resumes(last); cause != "" {
		return judgement{cause: cause}, nil
	}

	now := use{expires: c.Expires, resume: b.resume, attempt: b.attempt}
	if err := t.burned.Put(key, now.encode()); err != nil {
		return judgement{}, err
	}
	if last != nil {
		now.expires = max(now.expires, last.expires)
		now.resume = max(now.resume, last.resume)
	}
	if err := t.ranks.Put(rankKey(c), now.encode()); err != nil {
		return judgement{}, err
	}
	if record.expires < c.Expires {
		record.expires = c.Expires
		if err := t.allocations.Put(allocation, record.encode()); err != nil {
			return judgement{}, err
		}
	}
	return judgement{next: now.resume + 1, wrote: true}, nil
}

// presentedAgain judges a nonce that is burned. Its answer may have been lost, so the same attempt gets it once more,
// until something shows that the answer arrived.
func (b *burn) presentedAgain(first use, last *use, wasUsed func(Claim) bool) judgement {
	switch {
	case b.attempt == nil || first.attempt == nil:
		return judgement{cause: CauseReplayed}
	case !sameAttempt(b.attempt, first.attempt):
		return judgement{cause: CauseAttempt}
	case wasUsed(b.claim):
		return judgement{cause: CauseUsed}
	case last == nil || last.resume > first.resume:
		return judgement{cause: CauseUsed} // only an answer carries the next resume credential
	case !sameAttempt(b.attempt, last.attempt):
		return judgement{cause: CauseReplayed} // another first credential of the rank has come since
	}
	return judgement{again: true, next: last.resume + 1}
}

// resumes says why a fresh resume credential is refused; "" where it isn't, or isn't one.
func (b *burn) resumes(last *use) string {
	switch {
	case b.resume == 0:
		return ""
	case last == nil || b.resume <= last.resume:
		return CauseResume
	case !sameAttempt(b.attempt, last.attempt):
		return CauseAttempt
	}
	return ""
}

// sameAttempt compares in constant time. No attempt is the same as none.
func sameAttempt(a, b Attempt) bool {
	return a != nil && b != nil && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
