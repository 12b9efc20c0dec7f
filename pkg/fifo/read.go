package fifo

import (
	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/segment"
)

// fill reads items from disk until memory has enough waiting items for a Take with these limits, memory is full, or no
// item is only on disk. Items that cannot be read are reported and skipped. Only the consumer may call fill.
func (q *Queue[T]) fill(limit int, maxBytes int64) error {
	q.mu.Lock()
	from, wanted := q.headEnd+1, q.wants(limit, maxBytes)
	q.mu.Unlock()
	for wanted {
		r, err := q.log.Read(from)
		if err != nil {
			return err
		}
		wanted = q.load(r, limit, maxBytes)
		from = r.Last + 1
	}
	return nil
}

// wants reports whether items must be read from disk for a Take with these limits, and memory has room for another
// item. It must be called with mu held.
func (q *Queue[T]) wants(limit int, maxBytes int64) bool {
	waiting := q.ready.len()
	return q.headEnd < q.diskEnd && (waiting == 0 || waiting < limit && q.ready.bytes < maxBytes) && q.headHasRoom(1)
}

// headHasRoom reports whether the head has room for one more item of this size.
func (q *Queue[T]) headHasRoom(size int64) bool {
	items, bytes := q.head()
	return items == 0 || q.headShare.fits(items, bytes, size)
}

// load appends the item of a record to ready, if there is room, and reports whether another record has to be read.
//
// headEnd cannot change while the record is read, because the record's item is still only on disk, and items move from
// buf to the head only while no item is only on disk.
func (q *Queue[T]) load(r segment.Record, limit int, maxBytes int64) (wanted bool) {
	var v T
	var size int64
	if r.Err == nil {
		v, r.Err = q.opts.Decode(r.Data, q.isLeft(r.Last))
	}
	if r.Err == nil {
		size = q.sizeOf(v)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !q.headHasRoom(size):
		return false
	case r.Err != nil:
		q.opts.Logger.Error("cannot read back spilled items, they are lost",
			"lost", r.Last-r.First+1, "err", r.Err)
		q.replace(Loss{r.First, r.Last, q.log.Positions(), r.Unnamed, r.Err})
	case mutant.On("lose-spilled") && r.Last%16 == 0:
		q.headEnd = r.Last
	default:
		q.ready.push(&node[T]{v: v, size: size, seq: r.Last})
		q.headEnd = r.Last
	}
	return q.wants(limit, maxBytes)
}

// isLeft reports whether the item with this number is left from before: see Options.Decode.
func (q *Queue[T]) isLeft(number uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return number <= q.left
}

// replace appends the replacements that OnCorrupt returns for lost items. All replacements have the number of the first
// lost item. Therefore the lost items count as acknowledged only when the last replacement is acknowledged. It must be
// called with mu held.
func (q *Queue[T]) replace(l Loss) {
	for _, v := range q.opts.OnCorrupt(l) {
		q.ready.push(&node[T]{v: v, size: q.sizeOf(v), seq: l.First})
	}
	q.headEnd = l.Last
	q.stats.Dropped += int64(l.Items())
}
