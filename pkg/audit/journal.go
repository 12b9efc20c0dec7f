package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/internal/segment"
)

var (
	// ErrFull is wrapped by the error of an Append that would exceed JournalOptions.MaxBytes.
	ErrFull = errors.New("the audit journal is full: events are not delivered as fast as they arrive")
	// ErrClosed is wrapped by errors of a journal that was closed.
	ErrClosed = errors.New("the audit journal is closed")
)

const (
	identityName = "identity"
	// segmentBytes is the maximum size of a file of the journal. It is small, because a file is removed only when all its
	// events are acknowledged, and because several readers read the same file at different places.
	segmentBytes = 4 << 20
)

// Position is a place in a journal, as readers store it. The zero Position is that of a reader that is new.
type Position struct {
	Journal string `json:"journal"` // Journal.ID
	Number  uint64 `json:"number"`  // the number up to which the reader has everything
}

// JournalOptions are the options of a Journal. Dir and Logger are required.
type JournalOptions struct {
	Dir string // created if it does not exist; its parent must exist
	// MaxBytes is the maximum size of the files, including acknowledged events in files that have others. 0 means no
	// limit.
	MaxBytes int64
	Known    []Position // everything that the caller has stored about this journal
	Logger   *slog.Logger
}

// Journal stores audit events on disk until they are acknowledged. It is safe for concurrent use.
type Journal struct {
	opts JournalOptions
	log  *segment.Log
	id   string

	// writing has one element while a goroutine writes. The following fields belong to this goroutine.
	writing    chan struct{}
	batch      *segment.Batch
	identified bool // the identity is on disk

	mu       sync.Mutex // guards the following fields; not held during I/O
	waiting  []*appending
	appended chan struct{} // closed and replaced when events were appended or the journal was closed
	closed   bool
}

// OpenJournal opens the journal in a directory, or starts a new one. If it returns an error, an operator has to fix the
// cause, such as missing permissions or another process that uses the journal. If the journal cannot be used, it is
// quarantined and a new one is started, with a new identity.
func OpenJournal(o JournalOptions) (*Journal, error) {
	onDamage := func(error) {} // damage is logged, and changes the identity
	log, err := segment.Open(o.Dir, segmentBytes, o.Logger, onDamage)
	if err != nil {
		return nil, fmt.Errorf("audit journal: %w", err)
	}
	j := &Journal{opts: o, log: log, writing: make(chan struct{}, 1), appended: make(chan struct{})}
	j.identify()
	if err := j.saveIdentity(); err != nil { // every Append tries again
		o.Logger.Warn("cannot write the identity of the audit journal, retrying", "path", o.Dir, "err", err)
	}
	return j, nil
}

// identify reads the identity of the journal. It creates a new one if there is none, or if the journal lacks events
// that were in it.
func (j *Journal) identify() {
	text, err := os.ReadFile(j.identityFile())
	j.id = strings.TrimSpace(string(text))
	last, why := j.log.Last(), ""
	if j.id == "" {
		why = "it has no identity"
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			why = err.Error()
		}
	}
	for _, known := range j.opts.Known {
		if known.Journal == j.id && known.Number > last {
			why = fmt.Sprintf("it ends with event %d, but event %d was in it", last, known.Number)
		}
	}
	if j.identified = why == ""; j.identified {
		return
	}
	if last > 0 || len(j.opts.Known) > 0 {
		j.opts.Logger.Error("audit events may be lost, the journal is not the one that was used before",
			"path", j.opts.Dir, "reason", why)
	}
	j.id = rand.Text()
}

func (j *Journal) identityFile() string { return filepath.Join(j.opts.Dir, identityName) }

// saveIdentity makes the identity durable. This must precede the first Append, because a reader may store a position as
// soon as there is an event.
func (j *Journal) saveIdentity() error {
	if j.identified {
		return nil
	}
	err := os.Mkdir(j.opts.Dir, 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = files.WriteFile(j.identityFile(), []byte(j.id+"\n"))
	}
	j.identified = err == nil
	return err
}

// ID returns the identity of the journal; see the package comment.
func (j *Journal) ID() string { return j.id }

// JournalStatus describes a journal.
type JournalStatus struct {
	Acked, Last     uint64 // numbers of the last event that is acknowledged, and of the last event
	Bytes, MaxBytes int64  // size of the files, and its limit
}

// Status returns the status of the journal.
func (j *Journal) Status() JournalStatus {
	acked := j.log.Acked() // before Last, so that it is not greater
	return JournalStatus{Acked: acked, Last: j.log.Last(), Bytes: j.log.Size(), MaxBytes: j.opts.MaxBytes}
}

// Resume returns the number of the event with which a reader continues that has stored a position. If events may be
// missing before this event, lost says why, and the reader must announce a gap. A new reader, with the zero Position,
// gets everything that is not acknowledged.
func (j *Journal) Resume(p Position) (next uint64, lost error) {
	next = j.log.Acked() + 1
	switch {
	case p == Position{}:
		return next, nil
	case p.Journal != j.id || p.Number > j.log.Last(): // the latter only if the position was not in Known
		return next, errors.New("audit events that were not delivered may be lost, because the audit journal " +
			"is not the one that they were in")
	case p.Number+1 < next:
		return next, fmt.Errorf("audit events %d to %d were removed from the audit journal", p.Number+1, next-1)
	}
	return p.Number + 1, nil
}

// Record is an event of the journal or, if Err is set, events that are lost.
type Record struct {
	First, Last uint64 // numbers; equal for an event
	Event       Event
	Err         error
}

// Read returns consecutive events, beginning with the number from. It waits until this event has been appended, and
// then returns at least one record, and further ones until they have maxBytes. Events that are acknowledged cannot be
// read. If Read returns an error, a later call may succeed, unless it is ErrClosed.
//
// Several readers should read many events at a time, because each change of place costs a scan of a file.
func (j *Journal) Read(ctx context.Context, from uint64, maxBytes int) ([]Record, error) {
	last, err := j.await(ctx, from)
	if err != nil {
		return nil, err
	}
	if acked := j.log.Acked(); from <= acked {
		return nil, fmt.Errorf("audit journal: event %d cannot be read, because all up to %d are acknowledged", from, acked)
	}
	var records []Record
	var p parser
	for size := 0; from <= last && (len(records) == 0 || size < maxBytes); {
		r, err := j.log.Read(from)
		switch {
		case err != nil && len(records) > 0:
			return records, nil // the next Read returns the error
		case errors.Is(err, segment.ErrClosed):
			return nil, ErrClosed
		case err != nil:
			return nil, fmt.Errorf("read the audit journal: %w", err)
		}
		record := Record{First: r.First, Last: r.Last, Err: r.Err}
		if r.Err == nil {
			record.Event, record.Err = p.parseEvent(r.Data)
		}
		records = append(records, record)
		size += len(r.Data)
		from = r.Last + 1
	}
	return records, nil
}

// await waits until the event has been appended, and returns the number of the last event.
func (j *Journal) await(ctx context.Context, number uint64) (last uint64, err error) {
	for {
		j.mu.Lock()
		appended, closed := j.appended, j.closed
		j.mu.Unlock()
		switch last = j.log.Last(); {
		case closed:
			return 0, ErrClosed
		case last >= number:
			return last, nil
		}
		select {
		case <-appended:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// Ack removes all events up to the number, which all readers must have delivered. When it returns nil, this is durable.
func (j *Journal) Ack(upTo uint64) error {
	j.writing <- struct{}{}
	defer j.release()
	if last := j.log.Last(); upTo > last {
		return fmt.Errorf("audit journal: cannot acknowledge event %d, the last one is %d", upTo, last)
	}
	if j.isClosed() {
		return ErrClosed
	}
	if err := j.log.Ack(upTo); err != nil {
		return fmt.Errorf("audit journal: %w", err)
	}
	return nil
}

func (j *Journal) release() { <-j.writing }

func (j *Journal) isClosed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed
}

// Close closes the journal, after a running Append. Everything that was appended is durable even without Close.
func (j *Journal) Close() error {
	j.writing <- struct{}{}
	defer j.release()
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	for _, a := range j.waiting {
		a.end(ErrClosed)
	}
	j.waiting = nil
	close(j.appended)
	j.mu.Unlock()
	return j.log.Close()
}
