package informer

import (
	"context"
	"errors"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Restater receives the known objects of an informer again. The informer never calls its methods and a handler at the
// same time.
type Restater interface {
	// MayRestate reports whether OnRestate may be called now. If it returns false, the watch continues, and MayRestate is
	// called again later.
	MayRestate() bool
	// OnRestate is called with the current state of a known object.
	OnRestate(o *object.Object)
}

// Resumer is an optional interface of handlers that may have received changes after Config.ResumeAt from the previous
// process.
type Resumer interface {
	// IsBehind reports whether the informer has not reached the position up to which the handler certainly received all
	// changes.
	IsBehind() bool
	// OnCaughtUp is called like the other methods of handlers, when CaughtUp of the informer begins to return true.
	OnCaughtUp()
}

// Errors that Restate and Turn return if objects cannot be restated.
var (
	ErrNotSynced = errors.New("the initial list has not been delivered yet")
	ErrEnded     = errors.New("the resource is no longer watched")
)

const (
	// restateSlice is the maximum number of objects that are restated between two changes of the watch.
	restateSlice = 256
	restatePause = 5 * time.Millisecond
)

// Restate calls r with the current state of each known object, in resourceVersion order. It processes a few objects at
// a time, between the changes of the watch. So neither the objects nor the changes wait for long, and no state is older
// than one that was delivered before. Once r.MayRestate has returned true, Restate omits objects that are created or
// deleted, because handlers are called for them anyway. It returns early when ctx ends. It returns ErrNotSynced or
// ErrEnded if the informer does not know the current objects.
func (i *Informer) Restate(ctx context.Context, r Restater) error {
	if !i.HasSynced() {
		return ErrNotSynced
	}
	// The known objects are read when r accepts objects for the first time. r drops earlier changes, because the sink
	// was sent them before a restart, but the objects of these changes must not be omitted.
	var entries []*entry
	err := i.Turn(ctx, r, func(string) { entries = i.restateSome(r, i.entries()) })
	for err == nil && len(entries) > 0 {
		err = i.Turn(ctx, r, func(string) { entries = i.restateSome(r, entries) })
	}
	return err
}

// restateSome calls r with the next objects, at most restateSlice and only as long as r accepts them, and returns the
// remaining ones. The caller must hold mu.
func (i *Informer) restateSome(r Restater, entries []*entry) (rest []*entry) {
	for n, e := range entries {
		if n == restateSlice || !r.MayRestate() {
			return entries[n:]
		}
		if now := i.Known(e.Key()); now != nil && now.UID == i.object(e).UID {
			r.OnRestate(now)
		}
	}
	return nil
}

// CaughtUp reports whether the informer has delivered all changes that the previous process may have sent: it has
// delivered a list of the current state, or ResumeGrace has passed since it opened its watch and since the last handler
// was behind. While a handler blocks, CaughtUp waits.
func (i *Informer) CaughtUp() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.caughtUp()
}

func (i *Informer) caughtUp() bool {
	return i.HasSynced() && i.isCurrent() && i.behind() == 0
}

// isCurrent reports whether objects may be restated. Before that, the known states may be older than what the previous
// process sent. It must be called with mu held.
func (i *Informer) isCurrent() bool { return !i.resuming && (i.resumed == nil || i.resumed.left <= 0) }

// behind returns the number of handlers that are behind.
func (i *Informer) behind() (n int) {
	notify(i.handlers, func(r Resumer) {
		if r.IsBehind() {
			n++
		}
	})
	return n
}

func (i *Informer) notifyCaughtUp() { notify(i.handlers, func(r Resumer) { r.OnCaughtUp() }) }

// Turn waits until r.MayRestate returns true, and then calls call with the position of the informer. No handler is
// called at the same time. Turn returns early when ctx ends, and returns ErrEnded if the informer has ended.
func (i *Informer) Turn(ctx context.Context, r Restater, call func(resourceVersion string)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return wait.PollUntilContextCancel(ctx, restatePause, true, func(context.Context) (bool, error) {
		return i.turn(r, call)
	})
}

// turn calls call if objects may be restated now. It reports whether it did.
func (i *Informer) turn(r Restater, call func(resourceVersion string)) (done bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.ended:
		return false, ErrEnded
	case !i.isCurrent(), !r.MayRestate():
		return false, nil
	}
	call(i.position)
	i.fetcher.forget()
	return true, nil
}
