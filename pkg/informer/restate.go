package informer

import (
	"context"
	"errors"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// Restater can be given what an informer knows once more. Its methods are called as a handler's are: in turn with those, never
// at the same time.
type Restater interface {
	// MayRestate reports whether it can take an object now. While it can't, the watch goes on, and it is asked again.
	MayRestate() bool
	// OnRestate is given a known object as it is now.
	OnRestate(o *object.Object)
}

// Why objects can't be restated.
var (
	ErrNotSynced = errors.New("its list is not handed over yet")
	ErrEnded     = errors.New("it is not watched any more")
)

const (
	// restateSlice is for how many objects a change in the watch may have to wait.
	restateSlice = 256
	restatePause = 5 * time.Millisecond
	// resumeGrace is how long after it resumed, which is when its first watch is open, an informer is taken to lag behind what the handlers were told by an earlier
	// process. The watch gives that at once; nothing says where it ends.
	resumeGrace = 5 * time.Second
)

// Restate gives r each object that is known, in resourceVersion order and in its state of that moment. It does so between the changes of the watch, a few objects at a time,
// so that neither waits for long: no handler is told of an object in an older state than before. What is deleted meanwhile
// is left out, and so is what is new: handlers are told of that anyway. It returns early when ctx ends, and with ErrNotSynced
// or ErrEnded if the informer does not know what there is.
func (i *Informer) Restate(ctx context.Context, r Restater) error {
	if !i.HasSynced() {
		return ErrNotSynced
	}
	return i.restate(ctx, r, sorted(i.indexer.List()), nil)
}

// Turn calls done with the position of the informer, once r may be restated to, as Restate calls r: not while a handler is called.
// It returns early when ctx ends, and with ErrEnded.
func (i *Informer) Turn(ctx context.Context, r Restater, done func(resourceVersion string)) error {
	return i.restate(ctx, r, nil, done)
}

// restate gives r objects, and then calls done, if that is not nil.
func (i *Informer) restate(ctx context.Context, r Restater, objects []*object.Object, done func(resourceVersion string)) error {
	for {
		rest, finished, err := i.restateSome(r, objects, done)
		if err != nil || finished {
			return err
		}
		pause := time.Duration(0)
		if len(rest) == len(objects) {
			pause = restatePause
		}
		objects = rest
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// restateSome gives r the next objects, as many as it takes at once, and returns those that are left.
func (i *Informer) restateSome(r Restater, objects []*object.Object, done func(string)) (rest []*object.Object, finished bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.phase == hasEnded {
		return nil, false, ErrEnded
	}
	if i.phase == resuming || i.phase == catchingUp && time.Since(i.resumedAt) < resumeGrace {
		return objects, false, nil
	}
	defer i.fetcher.forget()
	for n, o := range objects {
		if n == restateSlice || !r.MayRestate() {
			return objects[n:], false, nil
		}
		if now := i.known(o); now != nil && now.UID == o.UID {
			r.OnRestate(now)
		}
	}
	if !r.MayRestate() {
		return nil, false, nil
	}
	if done != nil {
		done(i.position)
	}
	return nil, true, nil
}
