package logfile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

const (
	// batchBytes is the size of the events after which Read returns.
	batchBytes = 1 << 20
	chunkBytes = 256 << 10
	// pollInterval is how often the reader looks whether the log has grown.
	pollInterval = 100 * time.Millisecond
	// maxStarts limits in how many places of an unreadable line an event is looked for.
	maxStarts = 100
)

// Options are the options of a Reader. All of them are required.
type Options struct {
	Path    string // the log, as in --audit-log-path
	MaxLine int    // the maximum size of a line
	Logger  *slog.Logger
}

// Reader reads the log of an API server. It implements audit.Source.
type Reader struct {
	opts   Options
	poll   time.Duration // pollInterval
	at     place
	buffer []byte // follows the place
	seen   int    // how much of the buffer has no end of a line
	// open is nil at the beginning, and when the file is to be found with the position again.
	open    *content
	rotated bool // the open file was the log itself, and is not any longer
	lost    bool // a loss before what is opened next is noted already
	checked bool // the open file still has what was read of it
	waiting bool // for the log to be created, which is logged

	stored  json.RawMessage // the position to begin with
	started bool
}

// New returns a reader.
func New(o Options) *Reader { return &Reader{opts: o, poll: pollInterval} }

// Name implements audit.Source.
func (r *Reader) Name() string { return r.opts.Path }

// Read implements audit.Source.
func (r *Reader) Read(ctx context.Context, after json.RawMessage) (*audit.Batch, error) {
	batch := &audit.Batch{}
	if !r.started {
		r.stored = after
	}
	r.checked = false
	var err error
	idle := false
	for begin := time.Now(); err == nil && ctx.Err() == nil && batch.Bytes() < batchBytes; {
		var atEnd bool
		atEnd, err = r.step(batch)
		if errors.Is(err, errMoved) {
			atEnd, err = true, nil
		}
		if !atEnd {
			continue
		}
		if idle = r.started && time.Since(begin) >= audit.Idle; idle || batch.Len() > 0 {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.poll):
		}
	}
	if batch.Len() == 0 && !idle {
		return nil, explain(cmp.Or(err, ctx.Err()))
	}
	batch.Position, err = json.Marshal(r.at.position()) // if there was another error, the next call returns it
	return batch, err
}

// explain adds the remedy to an error.
func explain(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w; API servers create audit logs that only their own user can read: run the bridge as this user "+
		"(in a Pod, securityContext.runAsUser), or let its user read the file", err)
}

// Check returns an error if the log cannot be read now, unless it does not exist yet.
func (r *Reader) Check() error {
	file, err := os.Open(r.opts.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return explain(err)
	}
	return file.Close()
}

// Close closes the open file. Read must not be called any more.
func (r *Reader) Close() {
	if r.open != nil {
		r.open.close()
	}
}

// step does one of these: it opens a file, takes events from the buffer, or reads. It reports whether there is nothing
// more to read now.
func (r *Reader) step(batch *audit.Batch) (atEnd bool, err error) {
	if !r.started {
		return false, r.start(batch)
	}
	if r.open == nil {
		return r.follow(batch)
	}
	if r.take(batch); batch.Bytes() >= batchBytes {
		return false, nil
	}
	if !r.checked && !r.open.isCompressed() {
		r.checked = true
		if err := r.check(batch); err != nil {
			return false, err
		}
	}
	n, err := r.fill()
	switch {
	case n > 0:
		return false, nil
	case err != nil && isDamaged(err):
		r.lose(batch, "the backup %s is damaged: %v", r.open.path, err)
		r.drop(len(r.buffer))
		return false, r.leave(batch)
	case err != nil && !errors.Is(err, io.EOF):
		return false, err
	}
	return r.end(batch)
}

// fill reads more into the buffer.
func (r *Reader) fill() (int, error) {
	r.buffer = slices.Grow(r.buffer, chunkBytes)
	n, err := r.open.Read(r.buffer[len(r.buffer):cap(r.buffer)])
	r.buffer = r.buffer[:len(r.buffer)+n]
	return n, err
}

// drop removes bytes from the beginning of the buffer, and advances.
func (r *Reader) drop(n int) {
	r.at.advance(r.buffer[:n])
	r.buffer = append(r.buffer[:0], r.buffer[n:]...)
	r.seen = 0
}

// take takes the events of complete lines from the buffer.
func (r *Reader) take(batch *audit.Batch) {
	done := 0
	for batch.Bytes() < batchBytes {
		n := bytes.IndexByte(r.buffer[done+r.seen:], '\n')
		if n < 0 {
			r.seen = len(r.buffer) - done
			break
		}
		end := done + r.seen + n
		r.line(batch, r.buffer[done:end])
		done, r.seen = end+1, 0
	}
	seen := r.seen
	r.drop(done)
	if r.seen = seen; r.seen > r.opts.MaxLine || r.at.skipping && seen > 0 {
		if !r.at.skipping {
			batch.Lose(1, fmt.Sprintf("a line of %s has more than %d bytes", r.opts.Path, r.opts.MaxLine))
		}
		r.at.skipping = true
		r.drop(len(r.buffer))
	}
}

// line takes the event of a line. If the API server was killed while it wrote a line, the next event is in the same
// line.
func (r *Reader) line(batch *audit.Batch, line []byte) {
	if r.at.skipping {
		r.at.skipping = false
		return
	}
	events, lost, err := audit.ParseValue(line)
	if err == nil {
		batch.Add(events, lost)
		return
	}
	batch.Lose(1, fmt.Sprintf("lines of %s cannot be read: %v", r.opts.Path, err))
	start := []byte(`{"kind":"Event"`)
	for n, at := 0, 0; n < maxStarts && at < len(line)-1; n++ {
		found := bytes.Index(line[at+1:], start)
		if found < 0 {
			return
		}
		at += 1 + found
		if events, lost, err = audit.ParseValue(line[at:]); err == nil {
			batch.Add(events, lost)
			return
		}
	}
}

// end is called at the end of the open file. It waits if this is the log itself, and leaves it if it is a backup.
func (r *Reader) end(batch *audit.Batch) (atEnd bool, err error) {
	if r.open.stamp != "" || r.rotated {
		return false, r.leave(batch)
	}
	named, err := os.Stat(r.opts.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // the log is being rotated
	}
	if err != nil {
		return false, err
	}
	opened, err := r.open.file.Stat()
	if err != nil {
		return false, err
	}
	r.checked = false
	r.rotated = !os.SameFile(named, opened) // then read what was written before the rotation
	return !r.rotated && opened.Size() == r.at.offset+int64(len(r.buffer)), nil
}

// check begins again with the open file if it was truncated.
func (r *Reader) check(batch *audit.Batch) error {
	if r.open.holds(&r.at, r.buffer) {
		return nil
	}
	batch.Lose(0, fmt.Sprintf("%s was truncated after %d bytes of it were read", r.opts.Path, r.at.offset))
	r.at, r.buffer, r.seen = place{after: r.at.after}, r.buffer[:0], 0
	_, err := r.open.file.Seek(0, io.SeekStart)
	return err
}
