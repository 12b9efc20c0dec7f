package informer

import (
	"context"
	"errors"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// Restater receives the known objects of an informer again. Its methods are never called at the same time as a
// handler's.
type Restater interface {
	// MayRestate reports whether OnRestate may be called now. If not, the watch goes on, and MayRestate is called again
	// later.
	MayRestate() bool
	// OnRestate is given the present state of a known object.
	OnRestate(o *object.Object)
}

// The reasons why objects cannot be restated.
var (
	ErrNotSynced = errors.New("its list is not handed over yet")
	ErrEnded     = errors.New("it is not watched any more")
)

const (
	// restateSlice is the number of objects that are restated before the next change of the watch.
	restateSlice = 256
	restatePause = 5 * time.Millisecond
	// resumeGrace is the time after the first watch of a resumed informer is open during which nothing is restated: the
	// informer may lag behind what the previous process sent. The watch brings that at once, but nothing marks its end.
	resumeGrace = 5 * time.Second
)

// Restate gives r the present state of each known object, in resourceVersion order. It gives a few objects at a time,
// between the changes of the watch, so that neither waits for long, and no state is older than one that was handed on
// before. It leaves out objects that are created or deleted meanwhile: handlers are called for them anyway. It returns
// early when ctx ends, and with ErrNotSynced or ErrEnded if the informer does not know the present objects.
func (i *Informer) Restate(ctx context.Context, r Restater) error {
	if !i.HasSynced() {
		return ErrNotSynced
	}
	return i.restate(ctx, r, sorted(i.indexer.List()), nil)
}

// Turn waits until r.MayRestate is true, and then calls done with the position of the informer while no handler is
// called. It returns early when ctx ends, and with ErrEnded.
func (i *Informer) Turn(ctx context.Context, r Restater, done func(resourceVersion string)) error {
	return i.restate(ctx, r, nil, done)
}

// restate gives objects to r, and then calls done if it is not nil.
func (i *Informer) restate(
	ctx context.Context,
	r Restater,
	objects []*object.Object,
	done func(resourceVersion string),
) error {
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

// restateSome gives the next objects to r, as many as it accepts at once, and returns the others.
func (i *Informer) restateSome(
	r Restater,
	objects []*object.Object,
	done func(string),
) (rest []*object.Object, finished bool, err error) {
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
