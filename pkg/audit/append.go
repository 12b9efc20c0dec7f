package audit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

const (
	// groupBytes is the size of the events after which no other requests join a write.
	groupBytes = 8 << 20
	// keptBytes is the maximum size of a buffer that is kept for the next write.
	keptBytes = 1 << 20
	// recordBytes is at least what the log adds to each event.
	recordBytes = 32
)

// appending is a call of Append.
type appending struct {
	events [][]byte
	bytes  int64
	done   chan struct{} // closed when err is valid
	err    error
}

func (a *appending) end(err error) {
	a.err = err
	close(a.done)
}

// Append appends events, each of them the JSON of an audit event, all or none of them. When it returns nil, they are
// durable. Calls at the same time share a write to the disk. If it returns the error of ctx, nothing was appended.
// After another error, events may be in the journal if the process ends before the next Append.
func (j *Journal) Append(ctx context.Context, events [][]byte) error {
	if len(events) == 0 {
		return nil
	}
	a := &appending{events: events, done: make(chan struct{})}
	for _, raw := range events {
		a.bytes += int64(len(raw)) + recordBytes
	}
	if err := j.enqueue(a); err != nil {
		return err
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		if j.withdraw(a) {
			return context.Cause(ctx)
		}
		<-a.done // it is being written
		return a.err
	case j.writing <- struct{}{}:
	}
	defer j.release()
	for { // the first goroutine that can write does it for all
		select {
		case <-a.done:
			return a.err
		default:
			j.commit()
		}
	}
}

func (j *Journal) enqueue(a *appending) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	j.waiting = append(j.waiting, a)
	return nil
}

// withdraw removes a call that nobody writes yet. It returns false if there is no such call.
func (j *Journal) withdraw(a *appending) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.Index(j.waiting, a)
	if i < 0 {
		return false
	}
	j.waiting = slices.Delete(j.waiting, i, i+1)
	return true
}

// commit writes the events of the calls that wait, and ends these calls.
func (j *Journal) commit() {
	group := j.take()
	err := j.saveIdentity()
	var fits []*appending
	if err == nil {
		fits, err = j.encode(group)
	}
	if err == nil && len(fits) > 0 {
		err = j.log.Append(j.batch, nil)
	}
	if err != nil {
		err = fmt.Errorf("audit journal %s: %w", j.opts.Dir, err)
	}
	if j.batch != nil && j.batch.Bytes() > keptBytes {
		j.batch = nil
	}
	j.mu.Lock()
	close(j.appended)
	j.appended = make(chan struct{})
	j.mu.Unlock()
	for _, a := range group {
		a.end(cmp.Or(a.err, err))
	}
}

// take returns the calls to write next.
func (j *Journal) take() []*appending {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, bytes := 0, int64(0)
	for n < len(j.waiting) && bytes < groupBytes {
		bytes += j.waiting[n].bytes
		n++
	}
	group := slices.Clone(j.waiting[:n])
	j.waiting = slices.Delete(j.waiting, 0, n)
	return group
}

// encode sets j.batch to the events of the calls for which there is room, and returns these calls. The others get
// ErrFull.
func (j *Journal) encode(group []*appending) (fits []*appending, err error) {
	if j.batch == nil {
		j.batch = j.log.NewBatch()
	}
	j.batch.Reset()
	size, number := j.log.Size(), j.log.Last()
	for _, a := range group {
		if j.opts.MaxBytes > 0 && size+a.bytes > j.opts.MaxBytes {
			a.err = fmt.Errorf("%w (%d of %d bytes)", ErrFull, size, j.opts.MaxBytes)
			continue
		}
		size += a.bytes
		fits = append(fits, a)
		for _, raw := range a.events {
			number++
			encode := func(dst []byte) ([]byte, error) { return append(dst, raw...), nil }
			if _, err := j.batch.Add(number, "", "", math.MaxInt64, encode); err != nil {
				return nil, err
			}
		}
	}
	return fits, nil
}
