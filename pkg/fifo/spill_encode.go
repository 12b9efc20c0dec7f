package fifo

import (
	"fmt"
	"maps"
)

// encode makes blocks of c.entries, as far as there is room, and adds their marks to those of p. With an error the items
// before the one that it is about are encoded.
func (c *committer[T]) encode(p plan) (blocks []*blockWriter, marks map[string]mark, err error) {
	marks = maps.Clone(p.marks)
	var w *blockWriter
	var done int64 // what the finished blocks take
	var total int
	for _, e := range c.entries {
		if w != nil && w.size() >= blockBytes {
			w.finish()
			done += w.bytes
			w = nil
		}
		if w == nil {
			w = c.writer(len(blocks))
			w.reset(e.seq)
			blocks = append(blocks, w)
		}
		before := w.size()
		added, encodeErr := w.add(
			func(dst []byte) ([]byte, error) { return c.opts.Encode(dst, e.v) },
			func(bytes int) bool {
				alone := p.firstKept == 0 && len(blocks) == 1 && before == blockHead
				return p.room < 0 || done+footprint(bytes) <= p.room || alone
			},
		)
		if encodeErr != nil {
			err = fmt.Errorf("encode an item: %w", encodeErr)
			break
		}
		if !added {
			c.cut = true
			break
		}
		if c.opts.Mark != nil {
			if source, position := c.opts.Mark(e.v); source != "" {
				marks[source] = mark{position, e.seq}
			}
		}
		if total += w.size() - before; int64(total) >= c.commitBytes {
			c.more = c.more || e.seq < c.entries[len(c.entries)-1].seq
			break
		}
	}
	if w != nil {
		if w.last < w.first { // the first item was not added
			return blocks[:len(blocks)-1], marks, err
		}
		w.finish()
	}
	return blocks, marks, err
}

// writer is the i-th of c's writers.
func (c *committer[T]) writer(i int) *blockWriter {
	if i == len(c.writers) {
		c.writers = append(c.writers, new(blockWriter))
	}
	return c.writers[i]
}
