package statelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/deltabridge/deltabridge/internal/pause"
)

// Writer appends to a log during one term, which begins with Claim and ends with an error that is ErrConflict. Its
// methods must not be called concurrently. While it is in use, nothing else may use the log or change the copy.
type Writer struct {
	log    Log
	copy   Source
	reader reader
	term   Claim
	ended  error // why the term has ended

	after   int64 // end of the log
	size    int   // maximum size of a record
	pending *pending

	cursor    string // cursor of the running pass
	purged    bool   // the log was purged, so a pass must begin
	truncated int64  // the records before this position were removed in this term
	interval  int64  // see Point.due
	accepted  error  // see Problem
}

// pending is a commit that may be in the log.
type pending struct {
	commit   *commit
	claim    Claim
	cursor   string // cursor after the commit, if the commit belongs to a pass
	position int64
	part     uint64
}

// errNoTerm is the value of Writer.ended before Claim has succeeded.
var errNoTerm = fmt.Errorf("%w: Claim was not called", ErrConflict)

// NewWriter returns a Writer that has not claimed the log yet. own contains what the process knows about itself.
func NewWriter(log Log, local Source, own Claim) *Writer {
	return &Writer{
		log: log, copy: local, reader: reader{log: log, copy: local, own: own}, ended: errNoTerm, interval: interval,
	}
}

// Claim begins a term: it fences earlier processes, reads the rest of the log into the copy, and appends a claim. After
// that, the copy has all commits.
//
// ErrIncomplete means that the log was purged, deleted or damaged, and that commits may be missing in the copy. Another
// process may have a better copy. If acceptLoss is true, the copy is written to the log as it is, or is emptied if it
// is Partial, and Problem returns this error. ErrForeign and files.NewerFormatError mean that this process must not use
// the log. ErrConflict means that another process has claimed the log meanwhile. After any other error, call Claim
// again.
func (w *Writer) Claim(ctx context.Context, acceptLoss bool) error {
	if w.ended, w.pending, w.purged, w.truncated = errNoTerm, nil, false, -1; w.term.Epoch > 0 {
		w.accepted, w.term = nil, Claim{}
	}
	w.reader.restart()
	for tried := uint64(0); ; {
		if err := w.reader.read(ctx); err != nil {
			return err
		}
		if by := w.reader.point.Claim; tried > 0 && w.reader.epoch >= tried {
			return fmt.Errorf("%w: %q has claimed it, epoch %d", ErrConflict, by.Holder, w.reader.epoch)
		}
		end, err := w.log.Fence(ctx)
		if err != nil {
			return err
		}
		if err := w.reader.read(ctx); err != nil {
			return err
		}
		w.after = max(end, w.reader.end)
		if w.size = w.log.MaxRecord(); w.size <= 0 {
			w.size = 1 << 20
		}
		w.size = max(w.size, minRecord)
		first, problem, err := w.examine(ctx)
		if problem != nil && acceptLoss {
			w.accepted, problem = problem, w.discard()
			w.reader.point.Pass = Pass{} // until the one that begins now is complete
		}
		if err := errors.Join(err, problem); err != nil {
			return err
		}
		term := w.reader.own
		term.Epoch, term.Nonce = max(w.reader.epoch, w.reader.point.Claim.Epoch)+1, rand.Uint64()
		term.Unsent = w.reader.point.Unsent
		if term.Epoch == 1 { // later than the epochs of a log that was deleted
			term.Epoch = uint64(max(1, time.Now().Unix()))
		}
		if err = w.claim(ctx, term, first); err == nil {
			w.term, w.ended = term, nil
			return nil
		}
		if w.ended = errNoTerm; !errors.Is(err, ErrConflict) {
			return err
		}
		if tried = term.Epoch; w.accepted != nil { // nothing is lost yet
			w.accepted = nil
			w.reader.restart()
		}
		if !pause.For(ctx, rand.N(200*time.Millisecond)) { // the other process may be about to claim
			return ctx.Err()
		}
	}
}

// examine looks for a problem before a claim, and returns whether a pass must begin.
func (w *Writer) examine(ctx context.Context) (first bool, problem, err error) {
	r := &w.reader
	number, found, err := w.first(ctx)
	switch {
	case err != nil:
		return false, nil, err
	case r.point.Partial:
		problem = fmt.Errorf("%w: it has no complete pass, and the local copy is incomplete", ErrIncomplete)
	case r.mode != synced && r.lost != nil:
		problem = r.lost
	case r.mode != synced && number > 1:
		problem = fmt.Errorf("%w: it begins with commit %d, of which parts are missing", ErrIncomplete, number-1)
	}
	// A pass that its leader did not finish begins again: readers may wait for it.
	return r.mode != synced || !found || number > r.point.Pass.Number || r.point.Running.Number > 0, problem, nil
}

// discard empties a copy that is Partial.
func (w *Writer) discard() error {
	if !w.reader.point.Partial {
		return nil
	}
	w.reader.point = Point{}
	return w.copy.Reset()
}

// Problem returns the ErrIncomplete that Claim has accepted, or nil.
func (w *Writer) Problem() error { return w.accepted }

// Point returns the point of the last commit that was appended or read.
func (w *Writer) Point() Point { return w.reader.point }

// CanDetach reports whether the copy has all changes that the log has or may have. Only then can the copy go on without
// the log (Point.Unsent).
func (w *Writer) CanDetach() bool {
	p := w.pending
	return w.current() && (p == nil || p.commit.kind != kindChanges || len(p.commit.payload) == 0)
}

// Term returns the claim of this process. If the process did not know the installation or the cluster, the claim has
// those of the log.
func (w *Writer) Term() Claim { return w.term }

// Rename makes the log name another configuration of this process, and the changes that the log has received
// (Claim.Sent). It appends a claim with the next epoch. Unlike Claim, it does not fence other processes, so it fails if
// one of them has claimed the log. Errors are those of Append. The copy must not have changes that the log lacks.
func (w *Writer) Rename(ctx context.Context, configuration, sent string) error {
	if err := w.Sync(ctx); err != nil || w.term.Configuration == configuration && w.term.Sent == sent {
		return err
	}
	term := w.term
	term.Configuration, term.Unsent, term.Sent = configuration, "", sent
	term.Epoch, term.Nonce = term.Epoch+1, rand.Uint64()
	return w.claim(ctx, term, false)
}

// claim appends the claim of this process. If first is true, the claim begins a pass. If the copy is then empty, the
// claim is the whole pass.
func (w *Writer) claim(ctx context.Context, term Claim, first bool) error {
	payload, err := json.Marshal(term)
	if err != nil {
		return err
	}
	p := pending{commit: w.commit(kindClaim, term.Epoch, payload), claim: term}
	if p.commit.first = first; first {
		pairs, _, done, err := w.copy.Next("", 1)
		if err != nil {
			return err
		}
		p.commit.last = done && len(pairs) == 0
	}
	if err := w.append(ctx, p); err != nil {
		return err
	}
	return w.note()
}

// note stores the point of a commit that does not change the copy.
func (w *Writer) note() error { return w.copy.Apply(nil, w.reader.point) }

// commit returns the next commit.
func (w *Writer) commit(k kind, epoch uint64, payload []byte) *commit {
	r := &w.reader
	return &commit{
		header{kind: k, epoch: epoch, number: max(r.number, r.point.Number) + 1, previous: r.point.Chain}, payload,
	}
}

// Append appends pairs as one commit. If it returns no error, the copy must apply the pairs and store the point before
// the next method is called. If that fails, or if Append returns an error, call Sync before the next change of the copy
// is prepared. Append can be called within a transaction of the copy: it calls nothing but Point.
//
// If the broker does not acknowledge a record, Append repeats it until the context ends. ErrConflict means that the
// term has ended. The next leader may have the commit. After ErrTooLarge, the log does not have the commit. ErrBehind
// means that Sync must be called first. After any other error, the commit may be in the log, and Sync completes it.
func (w *Writer) Append(ctx context.Context, pairs []Pair) (Point, error) {
	if w.ended != nil {
		return Point{}, w.ended
	}
	if w.pending != nil || !w.current() {
		return Point{}, ErrBehind
	}
	err := w.append(ctx, pending{commit: w.commit(kindChanges, w.term.Epoch, encodePairs(pairs))})
	return w.reader.point, err
}

// Touch appends a commit without pairs, which shows that the log can be written. Otherwise, it is like Append, but it
// stores the point in the copy itself.
func (w *Writer) Touch(ctx context.Context) error {
	if _, err := w.Append(ctx, nil); err != nil {
		return err
	}
	return w.note()
}

// current reports whether the copy has the last commit.
func (w *Writer) current() bool {
	at := w.copy.Point()
	return at.Number == w.reader.point.Number && at.Chain == w.reader.point.Chain
}

// append appends a commit.
func (w *Writer) append(ctx context.Context, p pending) error {
	w.pending = &p
	p.position = w.after
	return w.complete(ctx)
}

// Complete completes the last commit if it is unknown whether the log has this commit. It does not change the copy,
// which requires Sync if the commit was not made by Append, or if Append has returned an error.
func (w *Writer) Complete(ctx context.Context) error {
	if w.ended != nil || w.pending == nil {
		return w.ended
	}
	return w.complete(ctx)
}

func (w *Writer) complete(ctx context.Context) error {
	p := w.pending
	for delay := 50 * time.Millisecond; p.part < p.commit.records(w.size); {
		end, err := w.log.Append(ctx, w.after, p.commit.record(w.size, p.part))
		switch {
		case err == nil:
			w.after = end
			p.part++
			continue
		case errors.Is(err, ErrConflict):
			w.ended, w.pending = err, nil
			return err
		case errors.Is(err, ErrTooLarge) && w.size/2 < minRecord:
			w.pending = nil
			return err
		case errors.Is(err, ErrTooLarge): // readers drop the parts that were already appended
			w.size, p.part, p.position = w.size/2, 0, w.after
			continue
		}
		if !pause.For(ctx, delay) {
			return fmt.Errorf("append to the state log: %w", err)
		}
		delay = min(2*delay, time.Second)
	}
	w.pending = nil
	if p.commit.kind == kindClaim && w.ended == nil { // otherwise Claim has not succeeded yet
		w.term = p.claim
	}
	r := &w.reader
	r.point.Unsent = w.copy.Point().Unsent // it can change during a term
	r.point = r.point.next(p.commit, p.claim, p.position)
	r.point.Own = true
	r.epoch, r.number, r.mode = p.commit.epoch, p.commit.number, synced
	if p.commit.first {
		w.cursor, w.purged = "", false
	} else if p.commit.kind == kindRefresh {
		w.cursor = p.cursor
	}
	return nil
}

// Sync completes the last commit if it is unknown whether the log has this commit. Then it brings the copy up to date
// with the log. If the copy is up to date already, Sync does nothing.
func (w *Writer) Sync(ctx context.Context) error {
	if err := w.Complete(ctx); err != nil {
		return err
	}
	if w.current() {
		return nil
	}
	want, r := w.reader.point, w.reader
	r.restart()
	if err := r.read(ctx); err != nil {
		return err
	}
	switch {
	case r.epoch > w.term.Epoch:
		w.ended = fmt.Errorf("%w: %q has claimed it, epoch %d", ErrConflict, r.point.Claim.Holder, r.epoch)
	case r.mode != synced || r.point.Number != want.Number || r.point.Chain != want.Chain:
		w.ended = fmt.Errorf("%w: %w: commit %d can't be read again", ErrConflict, ErrIncomplete, want.Number)
	}
	return w.ended
}
