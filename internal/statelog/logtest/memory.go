package logtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

// Broker is a broker in memory with one log. All methods can be called concurrently.
type Broker struct {
	// Producers makes the broker fence like Kafka: after Fence, no other log can append, and one position stays without
	// a record. Without Producers, the broker fences like JetStream: a record must follow the last one.
	Producers bool
	// Max is the maximum size of a record, and Claimed is what MaxRecord returns.
	Max, Claimed int

	mu      sync.Mutex
	records []entry
	next    int64 // position of the next record
	end     int64 // position after the last record
	fence   *Memory
	created int // how many times the log was created again
	late    []lateRecord
	grown   chan struct{} // closed when a record is appended
}

type entry struct {
	position int64
	record   []byte
}

// lateRecord is a record that is still on its way.
type lateRecord struct {
	from  *Memory
	after int64
	entry
}

// NewBroker returns a broker with an empty log.
func NewBroker(producers bool) *Broker {
	return &Broker{Producers: producers, Max: 1 << 20, Claimed: 1 << 20, grown: make(chan struct{})}
}

// Open opens the log as another process.
func (b *Broker) Open() *Memory { return &Memory{broker: b} }

// Remove removes the records for which remove returns true.
func (b *Broker) Remove(remove func(position int64) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = slices.DeleteFunc(b.records, func(e entry) bool { return remove(e.position) })
}

// Recreate deletes the log and creates it again.
func (b *Broker) Recreate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records, b.next, b.end, b.fence, b.late = nil, 0, 0, nil, nil
	b.created++
}

// Arrive delivers the records that are still on their way, if the broker accepts them.
func (b *Broker) Arrive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.late {
		if b.accepts(l.from, l.after) {
			b.add(l.record)
		}
	}
	b.late = nil
}

func (b *Broker) accepts(from *Memory, after int64) bool {
	return b.end <= after && after <= b.next && from.created == b.created && (!b.Producers || b.fence == from)
}

func (b *Broker) add(record []byte) int64 {
	b.records = append(b.records, entry{b.next, record})
	b.next++
	b.end = b.next
	close(b.grown)
	b.grown = make(chan struct{})
	return b.end
}

// Fault is what goes wrong in an Append.
type Fault int

// The faults.
const (
	None       Fault = iota
	NotWritten       // uncertain, and the record was not written
	Written          // uncertain, and the record was written
	Late             // uncertain, and the record arrives with Broker.Arrive
)

// ErrUncertain is the error of an Append without an acknowledgement.
var ErrUncertain = errors.New("no acknowledgement")

// Memory is a log of a Broker.
type Memory struct {
	// Down, if not nil, is the error that all methods return.
	Down error

	broker *Broker
	fault  atomic.Pointer[func() Fault] // see SetFault
	// created is the value of Broker.created at the last Fence. If it differs, the log was created again since then.
	created int
}

// SetFault sets a function that returns what goes wrong in the next Append, or nil. It can be called at any time.
func (m *Memory) SetFault(f func() Fault) { m.fault.Store(&f) }

// Arrive delivers the records that are still on their way.
func (m *Memory) Arrive() { m.broker.Arrive() }

// Fence implements statelog.Log.
func (m *Memory) Fence(ctx context.Context) (int64, error) {
	if err := m.unavailable(ctx); err != nil {
		return 0, err
	}
	b := m.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	m.created = b.created
	if b.Producers {
		b.fence = m
		b.next++
	}
	return b.next, nil
}

// Append implements statelog.Log.
func (m *Memory) Append(ctx context.Context, after int64, record []byte) (int64, error) {
	if err := m.unavailable(ctx); err != nil {
		return 0, err
	}
	fault := None
	if f := m.fault.Load(); f != nil && *f != nil {
		fault = (*f)()
	}
	b := m.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if fault == NotWritten {
		return 0, ErrUncertain
	}
	if len(record) > b.Max {
		return 0, statelog.ErrTooLarge
	}
	record = slices.Clone(record)
	if fault == Late {
		b.late = append(b.late, lateRecord{m, after, entry{record: record}})
		return 0, ErrUncertain
	}
	for _, e := range b.records {
		if e.position >= after && bytes.Equal(e.record, record) { // written by an earlier attempt
			return e.position + 1, nil
		}
	}
	if !b.accepts(m, after) {
		return 0, statelog.ErrConflict
	}
	if end := b.add(record); fault != Written {
		return end, nil
	}
	return 0, ErrUncertain
}

// Read implements statelog.Log.
func (m *Memory) Read(ctx context.Context, from int64, each func(int64, []byte) error) (int64, error) {
	if err := m.unavailable(ctx); err != nil {
		return 0, err
	}
	b := m.broker
	b.mu.Lock()
	records, end := slices.Clone(b.records), b.next
	b.mu.Unlock()
	for _, e := range records {
		if e.position < from {
			continue
		}
		lent := slices.Clone(e.record)
		if err := each(e.position, lent); err != nil {
			return 0, err
		}
		clear(lent) // each must not keep the record
	}
	return end, nil
}

// Wait implements statelog.Log.
func (m *Memory) Wait(ctx context.Context, from int64) error {
	for {
		if err := m.unavailable(ctx); err != nil {
			return err
		}
		m.broker.mu.Lock()
		end, grown := m.broker.end, m.broker.grown
		m.broker.mu.Unlock()
		if end > from {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
		}
	}
}

// Truncate implements statelog.Log.
func (m *Memory) Truncate(ctx context.Context, before int64) error {
	if err := m.unavailable(ctx); err != nil {
		return err
	}
	m.broker.Remove(func(position int64) bool { return position < before })
	return nil
}

// MaxRecord implements statelog.Log.
func (m *Memory) MaxRecord() int { return m.broker.Claimed }

// Close implements statelog.Log.
func (m *Memory) Close() error { return nil }

func (m *Memory) unavailable(ctx context.Context) error {
	if m.Down != nil {
		return m.Down
	}
	return ctx.Err()
}
