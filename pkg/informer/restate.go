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
// process. CaughtUp reports whether the informer has delivered all these changes again.
type Resumer interface {
	CaughtUp() bool
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
	// ResumeGrace is how long, after a resumed informer has opened its first watch, it may still bring changes that the
	// previous process sent: the watch delivers them at once, but does not mark their end. If the watch ends within this
	// time, it begins again, and the time for which handlers block does not count. Until then, no objects are restated,
	// because the known states may be older. For a handler that was ahead of the informer's position, this time begins
	// when the informer has reached it.
	ResumeGrace = 5 * time.Second
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
	var objects []*object.Object
	err := i.Turn(ctx, r, func(string) { objects = i.restateSome(r, sorted(i.index.List())) })
	for err == nil && len(objects) > 0 {
		err = i.Turn(ctx, r, func(string) { objects = i.restateSome(r, objects) })
	}
	return err
}

// restateSome calls r with the next objects, at most restateSlice and only as long as r accepts them, and returns the
// remaining ones. The caller must hold mu.
func (i *Informer) restateSome(r Restater, objects []*object.Object) (rest []*object.Object) {
	for n, o := range objects {
		if n == restateSlice || !r.MayRestate() {
			return objects[n:]
		}
		if now := i.known(o); now != nil && now.UID == o.UID {
			r.OnRestate(now)
		}
	}
	return nil
}

// CaughtUp reports whether the informer has delivered all changes that the previous process may have sent: it has
// delivered a list, or the watch that continued from the checkpoint has been open for ResumeGrace, and all handlers
// have caught up. While a handler blocks, CaughtUp waits.
func (i *Informer) CaughtUp() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.caughtUp()
}

func (i *Informer) caughtUp() bool {
	caughtUp := i.HasSynced() && i.isCurrent()
	notify(i.handlers, func(r Resumer) { caughtUp = caughtUp && r.CaughtUp() })
	return caughtUp
}

// isCurrent must be called with mu held.
func (i *Informer) isCurrent() bool { return !i.resuming && time.Since(i.resumedAt) >= ResumeGrace }

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
