package statelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/internal/files"
)

const (
	chunk    = 512 << 10 // bytes of pairs in a commit of a pass
	interval = 16 << 20  // minimum number of bytes that are appended between two passes
)

// errFirst stops a Read after the first record.
var errFirst = errors.New("first record")

// Refresh does one step of a pass: it begins the pass if one is required, or appends the next chunk. After the last
// chunk, it removes everything before the pass. It returns whether there is another step, so that the caller can
// append commits between two steps.
func (w *Writer) Refresh(ctx context.Context) (more bool, err error) {
	if err := w.Sync(ctx); err != nil {
		return false, err
	}
	p := &w.reader.point
	if p.Running.Number == 0 || w.purged {
		err := w.truncate(ctx)
		if !w.purged && !p.due(w.interval) {
			return false, err
		}
		return true, errors.Join(err, w.claim(ctx, w.term, true))
	}
	pairs, next, done, err := w.copy.Next(w.cursor, min(chunk, w.size))
	if err != nil {
		return true, err
	}
	c := w.commit(kindRefresh, w.term.Epoch, encodePairs(pairs))
	c.last = done
	if err := w.append(ctx, pending{commit: c, cursor: next}); err != nil {
		return true, err
	}
	if err := w.note(); err != nil || !done {
		return true, err
	}
	return false, w.truncate(ctx)
}

// truncate removes everything before the last complete pass.
func (w *Writer) truncate(ctx context.Context) error {
	before := w.reader.point.Pass.Position
	if before <= w.truncated {
		return nil
	}
	if err := w.log.Truncate(ctx, before); err != nil {
		return err
	}
	w.truncated = before
	return nil
}

// Check reports whether the log still has everything from the beginning of the last complete pass on. If not, the log
// was purged, and the next Refresh begins a pass. Check also detects that another process has claimed the log, which
// otherwise only an append detects.
func (w *Writer) Check(ctx context.Context) (complete bool, err error) {
	if err := w.Sync(ctx); err != nil {
		return false, err
	}
	if err := w.examineEnd(ctx); err != nil {
		return false, err
	}
	number, found, err := w.first(ctx)
	if err != nil {
		return false, err
	}
	p := &w.reader.point
	w.purged = w.purged || !found || number > max(p.Pass.Number, p.Running.Number)
	return !w.purged, nil
}

// examineEnd ends the term if another process has appended a record of a later term.
func (w *Writer) examineEnd(ctx context.Context) error {
	_, err := w.log.Read(ctx, w.after, func(_ int64, record []byte) error {
		h, _, err := decode(record)
		switch {
		case errors.Is(err, ErrDamaged):
			return nil
		case err == nil && h.epoch > w.term.Epoch:
			w.ended = fmt.Errorf("%w: it has a record of epoch %d", ErrConflict, h.epoch)
			return w.ended
		}
		return err
	})
	return err
}

// first returns the number of the first commit whose first record is in the log.
func (w *Writer) first(ctx context.Context) (number uint64, found bool, err error) {
	_, err = w.log.Read(ctx, 0, func(_ int64, record []byte) error {
		h, _, err := decode(record)
		if errors.Is(err, ErrDamaged) {
			return nil
		}
		if number, found = h.number, true; h.part > 0 {
			number++ // the first record of this commit was removed
		}
		return errors.Join(err, errFirst)
	})
	if errors.Is(err, errFirst) && !files.IsNewerFormat(err) {
		err = nil
	}
	return number, found, err
}
