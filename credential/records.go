package credential

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Keys put what belongs together side by side, so that a gang's burns touch few pages however many others there are:
//
//	burned       name(allocation) 00 epoch(8) nonce
//	ranks        name(allocation) 00 epoch(8) rank(4)
//	allocations  name(allocation)
//
// Numbers are big-endian. An epoch is never negative, so the byte after the 00 is below 0x80, and a 00 inside a name
// is written 00 ff: no two triples share a key. ff occurs in no UTF-8 text; it also leads the digest that stands for
// a text too long for a key.
const (
	digestMark = 0xff
	digestLen  = 1 + sha256.Size
	maxKeyText = 512 // bytes; a store key may have 32,768, a credential's texts 65,536
)

// appendText appends s, or its digest where it is long.
func appendText(k []byte, s string) []byte {
	if len(s) <= maxKeyText {
		return append(k, s...)
	}
	sum := sha256.Sum256([]byte(s))
	return append(append(k, digestMark), sum[:]...)
}

func allocationKey(allocation string) []byte {
	if len(allocation) > maxKeyText {
		return appendText(nil, allocation)
	}
	return []byte(strings.ReplaceAll(allocation, "\x00", "\x00\xff"))
}

func gangKey(allocation string, epoch int64) []byte {
	k := append(allocationKey(allocation), 0)
	return binary.BigEndian.AppendUint64(k, uint64(epoch))
}

func burnedKey(c Claim) []byte { return appendText(gangKey(c.Allocation, c.Epoch), c.Nonce) }

func rankKey(c Claim) []byte {
	return binary.BigEndian.AppendUint32(gangKey(c.Allocation, c.Epoch), uint32(c.Rank))
}

// splitKey takes a key of burned or ranks apart. ok is false where no such key was ever written.
func splitKey(k []byte) (allocation []byte, epoch int64, rest []byte, ok bool) {
	end := -1
	if len(k) > 0 && k[0] == digestMark {
		end = digestLen
	} else {
		for i := 0; ; i++ {
			at := bytes.IndexByte(k[min(i, len(k)):], 0)
			if at < 0 {
				break
			}
			i += at
			if i+1 < len(k) && k[i+1] == digestMark {
				i++
				continue
			}
			end = i
			break
		}
	}
	if end < 1 || len(k) < end+9 || k[end] != 0 || k[end+1] >= 0x80 {
		return nil, 0, nil, false
	}
	return k[:end], int64(binary.BigEndian.Uint64(k[end+1:])), k[end+9:], true
}

// recordVersion leads every value, so that a later layout can be told apart.
const recordVersion = 1

// use is a value of burned, where it tells of one nonce, and of ranks, where it tells of the rank's last admission.
type use struct {
	expires float64 // Unix seconds; of ranks: the largest so far
	resume  uint64  // n of the resume credential, 0 for a first one; of ranks: the largest so far
	attempt Attempt
}

const useLen = 1 + 8 + 8

func (u use) encode() []byte {
	b := append(make([]byte, 0, useLen+sha256.Size), recordVersion)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(u.expires))
	b = binary.BigEndian.AppendUint64(b, u.resume)
	if u.attempt != nil {
		b = append(b, u.attempt[:]...)
	}
	return b
}

func decodeUse(b []byte) (use, error) {
	if (len(b) != useLen && len(b) != useLen+sha256.Size) || b[0] != recordVersion {
		return use{}, fmt.Errorf("%w: a burn of %d bytes", ErrFenceCorrupt, len(b))
	}
	u := use{
		expires: math.Float64frombits(binary.BigEndian.Uint64(b[1:])),
		resume:  binary.BigEndian.Uint64(b[9:]),
	}
	if !finite(u.expires) {
		return use{}, fmt.Errorf("%w: a burn that expires at %v", ErrFenceCorrupt, u.expires)
	}
	if len(b) > useLen {
		digest := [sha256.Size]byte(b[useLen:])
		u.attempt = &digest
	}
	return u, nil
}

// allocationRecord is a value of allocations.
type allocationRecord struct {
	floor   int64   // lowest epoch admitted
	expires float64 // Unix seconds, the largest expiry issued or burned; 0 where none is known
	issued  bool    // Remember told the expiry: the floor can go when it has passed
}

const allocationLen = 1 + 1 + 8 + 8

func (r allocationRecord) encode() []byte {
	var issued byte
	if r.issued {
		issued = 1
	}
	b := append(make([]byte, 0, allocationLen), recordVersion, issued)
	b = binary.BigEndian.AppendUint64(b, uint64(r.floor))
	return binary.BigEndian.AppendUint64(b, math.Float64bits(r.expires))
}

func decodeAllocation(b []byte) (allocationRecord, error) {
	if len(b) != allocationLen || b[0] != recordVersion || b[1] > 1 {
		return allocationRecord{}, fmt.Errorf("%w: an allocation of %d bytes", ErrFenceCorrupt, len(b))
	}
	r := allocationRecord{
		issued:  b[1] == 1,
		floor:   int64(binary.BigEndian.Uint64(b[2:])),
		expires: math.Float64frombits(binary.BigEndian.Uint64(b[10:])),
	}
	if r.floor < 0 || !finite(r.expires) {
		return allocationRecord{}, fmt.Errorf("%w: an allocation with floor %d and expiry %v", ErrFenceCorrupt, r.floor, r.expires)
	}
	return r, nil
}

// merge is the larger of both in every part: records only ever grow.
func (r allocationRecord) merge(o allocationRecord) allocationRecord {
	return allocationRecord{max(r.floor, o.floor), max(r.expires, o.expires), r.issued || o.issued}
}

func encodeSeconds(f float64) []byte {
	return binary.BigEndian.AppendUint64([]byte{recordVersion}, math.Float64bits(f))
}

func decodeSeconds(b []byte) (float64, error) {
	if len(b) != 9 || b[0] != recordVersion {
		return 0, fmt.Errorf("%w: a time of %d bytes", ErrFenceCorrupt, len(b))
	}
	f := math.Float64frombits(binary.BigEndian.Uint64(b[1:]))
	if !finite(f) {
		return 0, fmt.Errorf("%w: time %v", ErrFenceCorrupt, f)
	}
	return f, nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
