package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/segment"
	"github.com/deltabridge/deltabridge/internal/statelog"
)

// Events is a log of the spilled events of one sink. It implements fifo.Log, whose contract it has.
//
// Each Append is one transaction. If it fails, the state log may contain the events. A restart then finds them. If the
// process goes on instead, the next Append or Ack makes them invalid: the file may contain events after
// eventsRecord.Last, which do not count.
type Events struct {
	table

	// failed means that the last transaction failed, so the file may be ahead of record and size. Only the goroutine that
	// writes uses it.
	failed bool

	mu     sync.Mutex // guards the following fields; never held while waiting for the disk
	record eventsRecord
	size   int64 // total size of the events
	closed bool
}

// eventsRecord describes a log of events. Events up to Acked are not in the file. If Last is not higher, the file does
// not contain the record either.
type eventsRecord struct {
	Acked     uint64            `json:"acked"`
	Last      uint64            `json:"last"`
	Positions map[string]string `json:"positions"` // last position of each source; nil if the record was damaged
	// Unnamed is the number up to which lost events may belong to sources that are not in Positions, because the record
	// was damaged.
	Unnamed uint64 `json:"unnamed,omitempty"`
}

// ackedAtOnce is the maximum number of events that one transaction of Ack removes.
const ackedAtOnce = 4096

// Events returns the log of a sink's spilled events. With a Log, call it after TakeOver. Only one log of a sink can be
// in use.
//
// The log is removed by the first Commit whose configurations do not contain the sink.
func (s *Store) Events(sink string) (*Events, error) {
	e := &Events{table: table{s, spillOf(sink)}, record: eventsRecord{Positions: map[string]string{}}}
	if err := s.view(e.load); err != nil {
		return nil, boltfile.Explain("read the checkpoint", s.path, err)
	}
	return e, nil
}

// HasLog reports whether Options.Log is set.
func (s *Store) HasLog() bool { return s.opts.Log != nil }

// load reads the record, and measures the events. If the record is damaged, all events in the file count.
// If the process that sent them did not come to send the record (keyIncomplete), none counts.
func (e *Events) load(tx *bbolt.Tx) error {
	first, last, _ := e.measure(tx, math.MaxUint64)
	sealed := e.get(tx, keyEvents)
	if sealed == nil && (last == 0 || e.get(tx, keyIncomplete) != nil) {
		return nil
	}
	content, err := unseal(keyEvents, sealed)
	if err == nil {
		err = json.Unmarshal(content, &e.record)
	}
	if err != nil {
		e.record = eventsRecord{Acked: max(first, 1) - 1, Last: last, Unnamed: last}
		e.store.logger.Error("positions in the spill are damaged; their sources resume from the checkpoint",
			"events", e.name, "path", e.store.path, "err", err)
	}
	_, _, e.size = e.measure(tx, e.record.Last)
	return nil
}

// measure returns the number of the first event and of the last one up to a number, and the total size of these events.
func (e *Events) measure(tx *bbolt.Tx, upTo uint64) (first, last uint64, size int64) {
	for key, value := range valuesAfter(tx, bucketEvents, e.name, "") {
		number, ok := eventNumber(key)
		if !ok || number > upTo {
			break
		}
		if last = number; first == 0 {
			first = number
		}
		size += int64(len(value))
		e.store.release(tx, pageSize)
	}
	return first, last, size
}

// eventKey returns the key of an event.
func eventKey(number uint64) string { return string(binary.BigEndian.AppendUint64(nil, number)) }

// eventNumber returns the number of an event. It returns false if key is that of the record.
func eventNumber(key string) (number uint64, ok bool) {
	if len(key) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(key)), true
}

// NewBatch returns an empty batch.
func (e *Events) NewBatch() *segment.Batch { return segment.NewBatch() }

// Append implements fifo.Log.
func (e *Events) Append(b *segment.Batch, positions map[string]string) error {
	next := e.record
	next.Last, next.Positions = b.Last(), maps.Clone(next.Positions)
	if next.Positions == nil {
		next.Positions = map[string]string{}
	}
	maps.Copy(next.Positions, positions)
	maps.Copy(next.Positions, b.Positions())
	return e.write(next, func(t *transaction) (grown int64, err error) {
		for number, data := range b.Records() {
			key := eventKey(number)
			value := seal(key, append(make([]byte, sealSize, sealSize+len(data)), data...))
			if err := t.set(e.pair(key, value)); err != nil {
				return 0, fmt.Errorf("event %d: %w", number, err)
			}
			grown += int64(len(value))
		}
		e.store.release(t.Tx, int(grown))
		return grown, nil
	})
}

// Ack implements fifo.Log. It uses several transactions if it removes many events.
func (e *Events) Ack(upTo uint64) error {
	for e.record.Acked < upTo {
		next := e.record
		if next.Acked >= next.Last && !e.failed { // the file contains no events
			next.Acked, next.Last = upTo, upTo
			e.set(next, 0)
			return nil
		}
		if next.Acked = min(upTo, next.Acked+ackedAtOnce); upTo >= next.Last { // removing all of them takes one pair
			next.Acked, next.Last = upTo, upTo
		}
		if err := e.write(next, func(t *transaction) (int64, error) { return e.remove(t, next) }); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the events that become acknowledged, and returns by how many bytes the log grows.
func (e *Events) remove(t *transaction, next eventsRecord) (grown int64, err error) {
	if next.Acked >= next.Last {
		return 0, t.set(e.pair("", nil))
	}
	for number := e.record.Acked + 1; number <= next.Acked && err == nil; number++ {
		key := eventKey(number)
		value := e.get(t.Tx, key)
		if value == nil {
			continue
		}
		grown -= int64(len(value))
		err = t.set(e.pair(key, nil))
		e.store.release(t.Tx, pageSize)
	}
	return grown, err
}

// write changes the events and the record in one transaction. If no events are left, change has removed the record.
func (e *Events) write(next eventsRecord, change func(*transaction) (grown int64, err error)) error {
	var size, grown int64
	err := e.change(func(t *transaction) (err error) {
		if size = e.size; e.failed {
			_, _, size = e.measure(t.Tx, e.record.Last)
		}
		if grown, err = change(t); err != nil || next.Acked >= next.Last {
			return err
		}
		value, err := sealJSON(keyEvents, next)
		if err != nil {
			return err
		}
		return t.set(e.pair(keyEvents, value))
	})
	if next.Acked >= next.Last {
		size, grown = 0, 0
	}
	if e.failed = err != nil; err == nil {
		e.set(next, size+grown)
	}
	return err
}

func (e *Events) set(record eventsRecord, size int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.record, e.size = record, size
}

var errNoEvent = errors.New("the event is missing")

// Read implements fifo.Log.
func (e *Events) Read(number uint64) (segment.Record, error) {
	e.mu.Lock()
	r := segment.Record{
		First: number, Last: max(number, e.record.Last), Err: errNoEvent, Unnamed: number <= e.record.Unnamed,
	}
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return segment.Record{}, segment.ErrClosed
	}
	err := e.store.view(func(tx *bbolt.Tx) error {
		for key, value := range valuesAfter(tx, bucketEvents, e.name, eventKey(number-1)) {
			found, ok := eventNumber(key)
			if !ok || found > r.Last {
				break
			}
			e.store.release(tx, len(value))
			data, err := unseal(key, value)
			switch {
			case err != nil:
				r.Err = err
				continue
			case found == number:
				r.Last, r.Err, r.Unnamed, r.Data = number, nil, false, bytes.Clone(data)
			default:
				r.Last = found - 1
			}
			break
		}
		return nil
	})
	return r, boltfile.Explain("read the checkpoint", e.store.path, err)
}

// Acked implements fifo.Log.
func (e *Events) Acked() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.Acked
}

// Last implements fifo.Log.
func (e *Events) Last() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record.Last
}

// Positions implements fifo.Log.
func (e *Events) Positions() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.record.Positions)
}

// Size implements fifo.Log.
func (e *Events) Size() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.size
}

// Close implements fifo.Log. The store stays open.
func (e *Events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}

// table contains the values of one kind that belong to a sink.
type table struct {
	store *Store
	name  string // name of its bucket in bucketEvents
}

func (b *table) pair(key string, value []byte) statelog.Pair {
	return statelog.Pair{Bucket: bucketEvents, Source: b.name, Key: key, Value: value}
}

// get returns a value. It returns nil if the value does not exist.
func (b *table) get(tx *bbolt.Tx, key string) []byte {
	events := tx.Bucket([]byte(bucketEvents))
	if events != nil {
		events = events.Bucket([]byte(b.name))
	}
	if events == nil {
		return nil
	}
	return events.Get([]byte(key))
}

// change runs a transaction.
func (b *table) change(change func(*transaction) error) error {
	if err := b.store.lock(); err != nil {
		return err
	}
	defer b.store.writing.Unlock()
	return b.store.write(change)
}

// eventLogs returns the names of the buckets in bucketEvents, sorted.
func eventLogs(tx *bbolt.Tx) (names []string) {
	if events := tx.Bucket([]byte(bucketEvents)); events != nil {
		_ = events.ForEachBucket(func(name []byte) error { names = append(names, string(name)); return nil })
	}
	return names
}

// Waiting returns the sinks that have spilled or parked events, in no particular order.
func (s *Store) Waiting() (sinks []string, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		for _, name := range eventLogs(tx) {
			_, sink, _ := strings.Cut(name, "-")
			events := table{s, name}
			key, _ := tx.Bucket([]byte(bucketEvents)).Bucket([]byte(name)).Cursor().First()
			isPart := events.get(tx, keyEvents) == nil && events.get(tx, keyIncomplete) != nil // see load
			if key != nil && !isPart && !slices.Contains(sinks, sink) {
				sinks = append(sinks, sink)
			}
		}
		return nil
	})
	return sinks, boltfile.Explain("read the checkpoint", s.path, err)
}

// removeEvents removes the events of sinks that are not in configs.
func (t *transaction) removeEvents(configs map[string]string) error {
	kept := map[string]bool{}
	for sink := range configs {
		kept[spillOf(sink)], kept[parkedOf(sink)] = true, true
	}
	for _, name := range eventLogs(t.Tx) {
		if kept[name] {
			continue
		}
		t.store.logger.Warn("removing the events of a sink that is not in the configuration", "events", name)
		if err := t.set(statelog.Pair{Bucket: bucketEvents, Source: name}); err != nil {
			return err
		}
	}
	return nil
}
