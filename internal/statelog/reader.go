package statelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// maxBatch is the number of bytes of pairs that a reader collects before it calls Apply.
const maxBatch = 4 << 20

var (
	errRewind = errors.New("the log is read from its beginning")               // the copy does not continue in the log
	errProbe  = errors.New("the log is read from the last commit of the copy") // it may be another log
)

// mode is what a reader knows about the connection between its copy and the log.
type mode int

const (
	probing  mode = iota // nothing yet: the next commit must be that of the copy, or must follow it
	synced               // the copy continues in the log
	skipping             // it does not continue: commits are skipped until one follows the copy or begins a pass
)

// reader applies the commits of a log to a copy.
type reader struct {
	log  Log
	copy Copy
	own  Claim // claim of this process; adopt adds what this process does not know

	mode   mode
	probed bool  // whether the reader has returned to the point of the copy since the last complete read
	point  Point // point of the copy after the batch is applied
	batch  []Pair
	bytes  int
	next   int64  // position of the next record
	end    int64  // end of the log
	epoch  uint64 // highest epoch in the log; records of earlier epochs are dropped
	number uint64 // highest number of a commit in the log
	lost   error  // why commits are skipped
	count  int    // number of commits applied since the last call of restart, or since Follower.Read began

	head     header // header of the last record, if its commit is not complete
	payload  []byte
	position int64 // position of the first record of this commit
}

// restart continues from the point of the copy.
func (r *reader) restart() {
	r.batch, r.bytes, r.lost, r.head, r.count, r.probed = nil, 0, nil, header{}, 0, true
	r.point = r.copy.Point()
	r.next, r.epoch, r.number = r.point.Position, r.point.Claim.Epoch, r.point.Number
	r.adopt(r.point.Claim)
	if r.mode = probing; r.point.Number == 0 {
		r.mode, r.next = skipping, 0
	}
}

// adopt fills in what this process does not know about itself.
func (r *reader) adopt(c Claim) {
	r.own.Installation = cmp.Or(r.own.Installation, c.Installation)
	r.own.Cluster = cmp.Or(r.own.Cluster, c.Cluster)
}

// read reads to the end of the log and applies what it reads. It can be repeated after any error.
func (r *reader) read(ctx context.Context) error {
	for {
		end, err := r.log.Read(ctx, r.next, r.take)
		if err == nil && (end < r.next || r.mode == probing) {
			err = r.missing(ctx, end)
		}
		switch {
		case errors.Is(err, errRewind):
			r.mode, r.next, r.epoch, r.number, r.head = skipping, 0, 0, 0, header{}
			continue
		case errors.Is(err, errProbe):
			if err = r.flush(); err == nil {
				r.restart()
				continue
			}
		case err == nil:
			r.end, r.probed = end, false
		}
		return errors.Join(err, r.flush())
	}
}

// missing decides what to do if the log does not have the last commit of the copy. If the log was created again, or has
// later commits, it is read from its beginning. If the log has lost its last commits, or all commits, the copy is newer
// than the log and stays as it is.
func (r *reader) missing(ctx context.Context, end int64) error {
	r.mode = probing
	newer := r.point.Number == 0
	_, err := r.log.Read(ctx, 0, func(_ int64, record []byte) error {
		h, _, err := decode(record)
		if errors.Is(err, ErrDamaged) {
			return nil
		}
		newer = newer || h.number >= r.point.Number || h.epoch > r.point.Claim.Epoch
		return err
	})
	reason := "the last commit of the local copy is not in it"
	if err != nil || newer {
		return errors.Join(err, r.skip(reason))
	}
	r.mode = skipping
	r.next = end
	return r.skip(reason)
}

// skip notes that a commit can't be applied.
func (r *reader) skip(reason string) error {
	if r.mode == synced && !r.probed {
		return errProbe
	}
	if r.lost == nil || r.mode == synced {
		r.lost = fmt.Errorf("%w: %s", ErrIncomplete, reason)
	}
	if r.mode == probing {
		return errRewind
	}
	r.mode = skipping
	return nil
}

// take processes a record.
func (r *reader) take(position int64, record []byte) error {
	h, data, err := decode(record)
	if errors.Is(err, ErrDamaged) {
		if err, r.head = nil, (header{}); r.mode != probing { // the copy may have the commit
			err = r.skip(fmt.Sprintf("the record at position %d is damaged", position))
		}
	} else if err == nil && (h.epoch >= r.epoch || r.mode == probing) {
		err = r.assemble(h, position, data)
	}
	if err == nil {
		r.next = position + 1
	}
	return err
}

// assemble adds a record to its commit. A commit that is not complete when another one begins is dropped.
func (r *reader) assemble(h header, position int64, data []byte) error {
	expected := r.head
	expected.part++
	if h.part == 0 {
		r.payload, r.position = nil, position
	} else if h != expected {
		r.head = header{}
		return nil // if commits are missing, the next complete commit shows this
	}
	r.head, r.payload = h, append(r.payload, data...)
	if h.part+1 < h.parts {
		return nil
	}
	r.head, h.part, h.parts = header{}, 0, 0
	r.next = r.position // if the commit can't be applied, it is read again
	return r.commit(&commit{h, r.payload}, r.position)
}

// commit processes a complete commit.
func (r *reader) commit(c *commit, position int64) (err error) {
	var claim Claim
	if c.kind == kindClaim {
		if claim, err = c.claim(); err != nil {
			return r.skip(err.Error())
		}
		if err := claim.check(r.own); err != nil {
			return err
		}
		r.adopt(claim)
	}
	follows := r.point.precedes(c)
	if follows && r.point.isObsolete(c, claim) {
		return r.discard()
	}
	if !follows && !c.first && !r.point.is(c) && r.mode == probing {
		return r.skip("the local copy is from another log")
	}
	r.epoch, r.number = max(r.epoch, c.epoch), max(r.number, c.number)
	switch {
	case r.point.is(c): // the copy has it
		if err := r.point.Claim.checkLease(r.own); err != nil { // the Lease was renamed
			return err
		}
		r.mode, r.lost = synced, nil
		return r.point.Claim.check(r.own) // the claim is not read again
	case c.first && !follows:
		if err := r.copy.Reset(); err != nil {
			r.restart()
			return fmt.Errorf("empty the local copy: %w", err)
		}
		r.batch, r.bytes, r.point = nil, 0, Point{Partial: true}
		r.epoch, r.number = c.epoch, c.number
	case !follows:
		return r.skip(fmt.Sprintf("commit %d does not follow commit %d", c.number, r.point.Number))
	}
	return r.apply(c, claim, position)
}

// discard empties a copy with changes that the writer of the log does not have.
func (r *reader) discard() error {
	if err := r.copy.Reset(); err != nil {
		r.restart()
		return fmt.Errorf("empty the local copy: %w", err)
	}
	r.batch, r.bytes, r.point = nil, 0, Point{}
	return errProbe
}

func (r *reader) apply(c *commit, claim Claim, position int64) error {
	// A complete copy has what a pass contains.
	if c.kind == kindChanges && r.point.Unsent == "" || c.kind == kindRefresh && r.point.Partial {
		pairs, err := c.pairs()
		if err != nil {
			return r.skip(err.Error())
		}
		r.batch, r.bytes = append(r.batch, pairs...), r.bytes+len(c.payload)
	}
	r.mode, r.lost = synced, nil
	r.point = r.point.next(c, claim, position)
	r.count++
	if r.bytes < maxBatch {
		return nil
	}
	return r.flush()
}

// flush applies the batch. If that fails, the batch is read again.
func (r *reader) flush() error {
	stored := r.copy.Point()
	if stored.Number == r.point.Number && stored.Chain == r.point.Chain {
		return nil
	}
	if err := r.copy.Apply(r.batch, r.point); err != nil {
		r.restart()
		return fmt.Errorf("write the local copy: %w", err)
	}
	r.batch, r.bytes = nil, 0
	return nil
}
