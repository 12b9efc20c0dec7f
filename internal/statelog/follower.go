package statelog

import (
	"context"
	"sync/atomic"
	"time"
)

// Follower applies the commits that another process appends to a log to a local copy. While it is in use, nothing else
// may use the log or change the copy. If the copy does not continue in the log, because it is from another log or older
// than the first record, the Follower empties the copy and reads the log from its beginning.
type Follower struct {
	reader reader
	behind atomic.Int64
}

// NewFollower returns a Follower. own contains what the process knows about itself.
func NewFollower(log Log, local Copy, own Claim) *Follower {
	f := &Follower{reader: reader{log: log, copy: local, own: own}}
	f.reader.restart()
	f.behind.Store(-1)
	return f
}

// Read reads to the end of the log. It can be repeated after any error. ErrForeign and files.NewerFormatError mean that
// this process must not use the log. ErrIncomplete means that commits are missing. The copy then stays as it is until
// the writer has noticed the loss and has begun another pass.
func (f *Follower) Read(ctx context.Context) error {
	r := &f.reader
	r.count = 0
	err := r.read(ctx)
	if err == nil && r.mode == skipping {
		err = r.lost
	}
	switch {
	case r.mode != synced || r.point.Partial:
		f.behind.Store(-1)
	case err == nil || f.behind.Load() >= 0:
		f.behind.Store(int64(r.count))
	}
	return err
}

// Wait returns when the log has grown since Read, or after a while, because the log may have been deleted and created
// again.
func (f *Follower) Wait(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := f.reader.log.Wait(short, max(f.reader.next, f.reader.end))
	if short.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// Behind returns how many commits the copy was behind the log when it was last read. It returns -1 if the copy was
// never complete. It can be called at any time.
func (f *Follower) Behind() int { return int(f.behind.Load()) }
