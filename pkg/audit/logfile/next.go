package logfile

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// start finds the file of the stored position.
func (r *Reader) start(batch *audit.Batch) error {
	var at position
	if len(r.stored) > 0 {
		if err := json.Unmarshal(r.stored, &at); err != nil {
			return fmt.Errorf("the stored position of %s: %w", r.opts.Path, err)
		}
	}
	r.at = place{after: at.After}
	if at.Offset > 0 {
		all, err := list(r.opts.Path)
		if err != nil {
			return err
		}
		c, p, err := find(all, &at, false)
		if err != nil {
			return err
		}
		if c != nil {
			r.open, r.at = c, p
		}
	}
	if r.started = true; r.open == nil && at.Offset > 0 {
		r.lose(batch, "a file of %s was removed or truncated before all of it was read", r.opts.Path)
	}
	return nil
}

// find returns the file that has the position, at its end if this is required, and its place. It returns nil if there
// is none.
func find(all []generation, at *position, atEnd bool) (*content, place, error) {
	for _, g := range slices.Backward(all) {
		c, err := g.open()
		switch {
		case err != nil && isDamaged(err):
			continue
		case err != nil:
			return nil, place{}, err
		}
		p, isSame, err := c.find(at)
		if isSame && (!atEnd || c.isAtEnd()) {
			return c, p, nil
		}
		c.close()
		if err != nil {
			return nil, place{}, err
		}
	}
	return nil, place{}, nil
}

// lose notes that an unknown number of events is missing.
func (r *Reader) lose(batch *audit.Batch, format string, args ...any) {
	batch.Lose(0, fmt.Sprintf(format, args...))
	r.lost = true
}

// follow opens the generation that follows what was read. It returns true if there is none yet.
func (r *Reader) follow(batch *audit.Batch) (atEnd bool, err error) {
	all, err := list(r.opts.Path)
	if err != nil {
		return false, err
	}
	n := slices.IndexFunc(all, func(g generation) bool { return g.follows(r.at.after) })
	if n < 0 {
		if !r.waiting {
			r.opts.Logger.Warn("the audit log does not exist yet, waiting for it", "path", r.opts.Path)
		}
		r.waiting = true
		return true, nil
	}
	isListed := func(g generation) bool { return g.stamp == r.at.after }
	if r.at.after != "" && !r.lost && !slices.ContainsFunc(all, isListed) {
		// The oldest files are removed first, so newer ones may have been removed as well.
		r.lose(batch, "files of %s were removed, perhaps before they were read", r.opts.Path)
	}
	c, err := all[n].open()
	if err != nil && isDamaged(err) {
		r.lose(batch, "the backup %s is damaged: %v", all[n].path, err)
		r.at = place{after: all[n].stamp}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.at = place{}
	if n > 0 {
		r.at.after = all[n-1].stamp
	}
	r.open, r.rotated, r.lost, r.waiting = c, false, false, false
	return false, nil
}

// leave closes a file that was read to its end.
func (r *Reader) leave(batch *audit.Batch) error {
	stamp, err := r.stamp()
	if err != nil {
		return err
	}
	if len(r.buffer) > 0 { // a line without an end
		r.line(batch, r.buffer)
		r.drop(len(r.buffer))
	}
	if stamp == "" {
		if stamp = r.at.after; r.at.offset > 0 {
			r.lose(batch, "a file of %s was removed after it was rotated, perhaps together with others that were not read",
				r.opts.Path)
		}
	}
	r.open.close()
	r.open, r.at = nil, place{after: stamp}
	return nil
}

// stamp returns the stamp of the open file, or an empty one if it is not one of the backups.
func (r *Reader) stamp() (string, error) {
	if r.open.stamp != "" {
		return r.open.stamp, nil
	}
	opened, err := r.open.file.Stat()
	if err != nil {
		return "", err
	}
	all, err := list(r.opts.Path)
	if err != nil {
		return "", err
	}
	for _, g := range slices.Backward(all) {
		if os.SameFile(g.info, opened) {
			return g.stamp, nil
		}
	}
	end := place{offset: r.at.offset, head: slices.Clone(r.at.head), tail: slices.Clone(r.at.tail)}
	end.advance(r.buffer)
	at := end.position()
	if at.Offset == 0 {
		return "", nil
	}
	c, _, err := find(all, &at, true) // it may have been compressed already
	if c == nil {
		return "", err
	}
	c.close()
	return c.stamp, nil
}
