package gateway

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// logPerRank bounds the copy of one rank's output, in bytes.
const logPerRank = 64 << 10

// budget is what the copies of all workloads' output may take together.
type budget struct {
	left    atomic.Int64
	dropped atomic.Uint64 // bytes that no copy was kept of
}

func newBudget(total int64) *budget {
	b := &budget{}
	b.left.Store(total)
	return b
}

func (b *budget) take(n int64) bool {
	for {
		left := b.left.Load()
		if left < n {
			return false
		}
		if b.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// logs is the bounded copy of a workload's output: the last bytes of each rank. It never blocks a rank.
type logs struct {
	mu      sync.Mutex
	budget  *budget
	ranks   []rankLog
	changed chan struct{}
	freed   bool
}

// rankLog holds the bytes [end-len(buf), end) of a rank's output.
type rankLog struct {
	buf []byte
	end int64
}

func newLogs(b *budget, size int) *logs {
	return &logs{budget: b, ranks: make([]rankLog, size), changed: make(chan struct{})}
}

func (l *logs) add(rank int, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rank < 0 || rank >= len(l.ranks) || l.freed {
		return
	}
	r := &l.ranks[rank]
	r.end += int64(len(p))
	over := len(r.buf) + len(p) - logPerRank
	if over > 0 {
		l.budget.dropped.Add(uint64(over))
		if over >= len(r.buf) {
			p = p[over-len(r.buf):]
			over = len(r.buf)
		}
		r.buf = append(r.buf[:0], r.buf[over:]...)
	}
	if need := len(r.buf) + len(p) - cap(r.buf); need > 0 {
		grow := min(max(2*cap(r.buf), 1024, len(r.buf)+len(p)), logPerRank)
		if !l.budget.take(int64(grow - cap(r.buf))) {
			// No memory left for copies: keep what fits the room there is.
			l.budget.dropped.Add(uint64(len(p)))
			r.buf = r.buf[:0]
			p = p[max(0, len(p)-cap(r.buf)):]
		} else {
			r.buf = append(make([]byte, 0, grow), r.buf...)
		}
	}
	r.buf = append(r.buf, p...)
	close(l.changed)
	l.changed = make(chan struct{})
}

// more returns a channel that closes once any rank has written more.
func (l *logs) more() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// read returns what a rank wrote since offset from, and the next offset. Bytes that are gone are replaced by a visible
// mark.
func (l *logs) read(rank int, from int64) (out []byte, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.ranks[rank]
	start := r.end - int64(len(r.buf))
	if from < start {
		out = fmt.Appendf(out, "[openai4s: %d bytes dropped]\n", start-from)
		from = start
	}
	out = append(out, r.buf[from-start:]...)
	return out, r.end
}

// free gives the memory back.
func (l *logs) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freed = true
	for i := range l.ranks {
		l.budget.left.Add(int64(cap(l.ranks[i].buf)))
		l.ranks[i].buf = nil
	}
}
