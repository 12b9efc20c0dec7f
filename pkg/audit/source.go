package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
)

const (
	positionsName = "positions.json"
	// positionInterval is how often the positions of sources are stored. After a crash, the events of this time are
	// imported again.
	positionInterval = time.Second
	// importRetry is the pause after a failed attempt to read a source, or to store its events.
	importRetry = time.Second
	// fullRetry is the pause while the journal is full.
	fullRetry = 100 * time.Millisecond
	// importBytes is the size of the events after which a batch is appended in several parts.
	importBytes = 4 << 20
)

// Idle is the time after which a source that can be read, and has no events, says so.
const Idle = 5 * time.Second

// Source is something that holds audit events outside of the bridge, such as a file or a topic. An [Importer] copies
// them to a journal.
type Source interface {
	// Name identifies the source in logs and in the stored positions.
	Name() string
	// Read returns what follows, and waits until there is something. If there is nothing for the time Idle, it returns an
	// empty batch. after is the position of the batch that the previous call returned, or in the first call, the stored
	// one, which is nil if there is none. Then the source begins with the first event that it has. If Read returns an
	// error, the batch is nil, and a later call may succeed.
	Read(ctx context.Context, after json.RawMessage) (*Batch, error)
	// Close is called when Read is not called any more.
	Close()
}

// Batch is a part of what a source has.
type Batch struct {
	Position json.RawMessage // of the end of the batch
	Err      error           // why a part of the source cannot be read; nil if all of it can

	events [][]byte // and records of losses
	bytes  int
	counts counts
	last   *Loss  // the last element of events, if it is a loss
	why    string // of the last loss
}

type counts struct{ events, lost int64 }

// Add appends what ParseValue has returned. It copies the events.
func (b *Batch) Add(events [][]byte, lost *Loss) {
	for _, raw := range events {
		b.events, b.last = append(b.events, append([]byte(nil), raw...)), nil
		b.bytes += len(raw)
	}
	b.counts.events += int64(len(events))
	if lost != nil {
		b.Lose(lost.Events, lost.Message)
	}
}

// AddMessage adds what a message of a topic contains. kind is the type of the CloudEvent in binary mode, if it is one.
// If the message has no audit event, that is a loss: what says which messages these are.
func (b *Batch) AddMessage(kind string, value []byte, what string) {
	if kind == cloudEventGap {
		b.Add(nil, parseGap(value))
		return
	}
	events, lost, err := ParseValue(value)
	if err != nil {
		b.Lose(1, fmt.Sprintf("%s cannot be read: %v", what, err))
		return
	}
	b.Add(events, lost)
}

// Lose notes that events are missing at this place: how many, or 0 if that is not known, and why. Equal losses that
// follow each other become one.
func (b *Batch) Lose(events int64, why string) {
	b.counts.lost += max(events, 1)
	b.why = why
	if b.last != nil && b.last.Message == why && b.last.Events > 0 && events > 0 {
		b.last.Events += events
		b.events[len(b.events)-1] = b.last.record()
		return
	}
	b.last = &Loss{Events: events, Message: why}
	b.events = append(b.events, b.last.record())
}

// limit replaces events for which the journal never has room with losses. 0 means no limit.
func (b *Batch) limit(maxBytes int64) {
	for n, raw := range b.events {
		if maxBytes > 0 && int64(len(raw)) > maxBytes {
			b.why = fmt.Sprintf("an audit event has %d bytes, so the audit journal has no room for it", len(raw))
			b.events[n] = (&Loss{Events: 1, Message: b.why}).record()
			b.counts.events--
			b.counts.lost++
		}
	}
}

// All returns the events in their order, and the losses between them.
func (b *Batch) All() iter.Seq2[[]byte, *Loss] {
	return func(yield func([]byte, *Loss) bool) {
		for _, raw := range b.events {
			var lost *Loss
			if l, isLoss := parseLoss(raw); isLoss {
				raw, lost = nil, &l
			}
			if !yield(raw, lost) {
				return
			}
		}
	}
}

// Len returns the number of events and losses.
func (b *Batch) Len() int { return len(b.events) }

// Bytes returns the size of the events.
func (b *Batch) Bytes() int { return b.bytes }

// ImportObserver receives what an Importer counts. Its methods are called concurrently.
type ImportObserver interface {
	// Imported is called when the events of a batch are durable. lost is how many events are missing, at least.
	Imported(events, lost int64, took time.Duration)
}

// SourceStatus says how a source is read.
type SourceStatus struct {
	Name     string
	Events   int64     // that were stored since the process started
	LastRead time.Time // when all of it could be read
	Err      error     // why it, or a part of it, cannot be read at the moment, or nil
	Since    time.Time // since when it cannot be read
}

// ImporterOptions are the options of an Importer. All of them are required.
type ImporterOptions struct {
	Journal  *Journal
	Sources  []Source
	Logger   *slog.Logger
	Observer ImportObserver
}

// Importer copies the events of sources to a journal. It stores up to where it has done so in the directory of the
// journal, after the events: a crash repeats events, and loses none. While the journal is full, it reads nothing.
type Importer struct {
	opts ImporterOptions
	path string

	mu        sync.Mutex // guards the following fields
	positions map[string]json.RawMessage
	changed   bool // since the positions were stored
	logged    map[string]time.Time
	status    []SourceStatus // in the order of ImporterOptions.Sources
}

// NewImporter returns an Importer, with the positions that an earlier one has stored.
func NewImporter(o ImporterOptions) *Importer {
	i := &Importer{
		opts: o, path: filepath.Join(o.Journal.opts.Dir, positionsName), positions: map[string]json.RawMessage{},
		logged: map[string]time.Time{},
	}
	for _, source := range o.Sources {
		i.status = append(i.status, SourceStatus{Name: source.Name()})
	}
	text, err := os.ReadFile(i.path)
	if err == nil {
		var stored map[string]json.RawMessage
		err = json.Unmarshal(text, &stored)
		maps.Copy(i.positions, stored)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		o.Logger.Error("cannot read up to where audit events were imported, beginning with the first ones",
			"path", i.path, "err", err)
	}
	return i
}

// Run imports until ctx ends.
func (i *Importer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for n, source := range i.opts.Sources {
		running.Go(func() { i.run(ctx, source, &i.status[n]) })
	}
	for wait(ctx, positionInterval) {
		if err := i.store(); err != nil {
			i.rarely("", func() {
				i.opts.Logger.Error("cannot store up to where audit events were imported, retrying", "err", err)
			})
		}
	}
	running.Wait()
	return i.store()
}

// Status returns the status of all sources, in the order of ImporterOptions.Sources.
func (i *Importer) Status() []SourceStatus {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.status)
}

// run imports one source.
func (i *Importer) run(ctx context.Context, source Source, status *SourceStatus) {
	defer source.Close()
	i.mu.Lock()
	after := i.positions[source.Name()]
	i.mu.Unlock()
	for ctx.Err() == nil {
		batch, err := source.Read(ctx, after)
		if ctx.Err() != nil {
			return // what was read is read again
		}
		if err == nil {
			err = batch.Err
		}
		i.noteRead(status, err)
		if err != nil {
			i.rarely(source.Name(), func() {
				i.opts.Logger.Error("cannot read audit events, retrying", "source", source.Name(), "err", err)
			})
		}
		if batch == nil {
			wait(ctx, importRetry)
			continue
		}
		if !i.append(ctx, source, batch) {
			return
		}
		i.mu.Lock()
		status.Events += batch.counts.events
		if !bytes.Equal(after, batch.Position) {
			after = batch.Position
			i.positions[source.Name()], i.changed = after, true
		}
		i.mu.Unlock()
	}
}

// noteRead notes the result of a call of Read. err can be that of a part.
func (i *Importer) noteRead(status *SourceStatus, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err == nil:
		status.LastRead, status.Since = time.Now(), time.Time{}
	case status.Err == nil:
		status.Since = time.Now()
	}
	status.Err = err
}

// append appends a batch to the journal. It returns false if ctx ends first.
func (i *Importer) append(ctx context.Context, source Source, batch *Batch) bool {
	batch.limit(i.opts.Journal.opts.MaxBytes / 2)
	if batch.counts.lost > 0 {
		i.rarely("lost "+source.Name(), func() {
			i.opts.Logger.Error("audit events are lost", "source", source.Name(), "reason", batch.why)
		})
	}
	begin := time.Now()
	for events := batch.events; len(events) > 0; {
		n, size := 0, 0
		for ; n < len(events) && size < importBytes; n++ {
			size += len(events[n])
		}
		if !i.appendPart(ctx, source, events[:n]) {
			return false
		}
		events = events[n:]
	}
	if batch.Len() > 0 {
		i.opts.Observer.Imported(batch.counts.events, batch.counts.lost, time.Since(begin))
	}
	return true
}

// appendPart appends events to the journal, and waits while that is not possible.
func (i *Importer) appendPart(ctx context.Context, source Source, events [][]byte) bool {
	for {
		err := i.opts.Journal.Append(ctx, events)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return false
		case errors.Is(err, ErrFull):
			i.rarely("full", func() {
				i.opts.Logger.Error(
					"audit journal is full, so audit events wait in their source",
					"source",
					source.Name(),
					"err",
					err,
				)
			})
			wait(ctx, fullRetry)
		default:
			i.rarely("journal", func() {
				i.opts.Logger.Error("cannot store audit events, retrying", "source", source.Name(), "err", err)
			})
			wait(ctx, importRetry)
		}
	}
}

// store stores the positions, if they have changed.
func (i *Importer) store() error {
	i.mu.Lock()
	text, err := json.Marshal(i.positions)
	changed := i.changed
	i.changed = false
	i.mu.Unlock()
	if err == nil && changed {
		err = files.WriteFile(i.path, text)
	}
	if err != nil {
		i.mu.Lock()
		i.changed = true
		i.mu.Unlock()
	}
	return err
}

// rarely calls log, unless it was called for the same key a short time before.
func (i *Importer) rarely(key string, log func()) {
	i.mu.Lock()
	isNews := time.Since(i.logged[key]) >= logInterval
	if isNews {
		i.logged[key] = time.Now()
	}
	i.mu.Unlock()
	if isNews {
		log()
	}
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
