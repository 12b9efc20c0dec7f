package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// ErrFutureVersion is what a probe returns for a resourceVersion that the cluster has not reached: it was restored from
// a backup, or is another one.
var ErrFutureVersion = errors.New("the cluster has not reached this resourceVersion: was it restored from a backup?")

// ProbeName is the name of the object that a probe asks for. RBAC may allow `get` for this name alone.
const ProbeName = "deltabridge-probe"

// NewProbe makes the Probe of a Config. It asks for one object at the resourceVersion or later; whether that object is
// there does not matter. The API server answers 504 with the cause ResourceVersionTooLarge for a resourceVersion from
// its future, where a watch would be accepted and stay silent (kubernetes#107457).
func NewProbe(client rest.Interface, gvr schema.GroupVersionResource, namespace string, namespaced bool) func(context.Context, string) error {
	if namespaced && namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return func(ctx context.Context, resourceVersion string) error {
		err := client.Get().AbsPath(ResourcePath(gvr, namespace), ProbeName).
			Param("resourceVersion", resourceVersion).MaxRetries(0).Do(ctx).Error()
		switch {
		case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
			return ErrFutureVersion
		case err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err):
			return nil // answered, or the watch will say
		default:
			return fmt.Errorf("ask whether the cluster has reached resourceVersion %s: %w", resourceVersion, err)
		}
	}
}

// resumingListWatch makes the first sync of a Reflector continue where an earlier process ended: in place of a list it
// gives an empty one at the resourceVersion, which store.Replace recognises (resumes), and the watch opens there. All
// later syncs are real.
type resumingListWatch struct {
	*observedListWatch

	mu sync.Mutex
	at string // empty once the first sync was begun, or given up
}

// pending gives the resourceVersion to resume at, after asking whether the cluster has reached it. An error is worth a
// retry; empty means that a real list is due.
func (l *resumingListWatch) pending(ctx context.Context) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == "" || l.informer.config.Probe == nil {
		return l.at, nil
	}
	ahead := false
	err := l.reach(ctx, verbWatch, func() error {
		err := l.informer.config.Probe(ctx, l.at)
		if ahead = errors.Is(err, ErrFutureVersion); ahead {
			return nil
		}
		return err
	})
	if ahead {
		l.informer.log.Warn("checkpoint is refused, listing", "resourceVersion", l.at, "err", ErrFutureVersion)
		l.informer.status.refusedCheckpoint()
		l.at = ""
		return "", nil
	}
	return l.at, err
}

func (l *resumingListWatch) begun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = ""
}

// ListWithContext is what the Reflector begins with where it does not use watch-lists.
func (l *resumingListWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	at, err := l.pending(l.runCtx)
	if err != nil {
		return nil, err
	}
	if at != "" {
		l.begun()
		l.informer.awaitWatch()
		return &object.List{ListMeta: metav1.ListMeta{ResourceVersion: at}}, nil
	}
	return l.observedListWatch.ListWithContext(ctx, options)
}

// WatchWithContext answers the first watch-list by a plain watch from the resourceVersion, with the bookmark in front
// that ends an empty initial list.
func (l *resumingListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents == nil || !*options.SendInitialEvents {
		return l.observedListWatch.WatchWithContext(ctx, options)
	}
	at, err := l.pending(l.runCtx)
	if err != nil {
		return nil, err
	}
	if at == "" {
		return l.observedListWatch.WatchWithContext(ctx, options)
	}
	w, err := l.watchFrom(ctx, options, at) // pending has probed
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		l.begun()
		return l.observedListWatch.WatchWithContext(ctx, options)
	case err != nil:
		return nil, err // the Reflector comes again
	}
	l.begun()
	return newPrefixedWatch(w, watch.Event{Type: watch.Bookmark, Object: object.NewBookmark(at)}), nil
}

// prefixedWatch is a watch with events in front.
type prefixedWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
	group   sync.WaitGroup
}

func newPrefixedWatch(w watch.Interface, first ...watch.Event) *prefixedWatch {
	p := &prefixedWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	p.group.Go(func() {
		defer close(p.events)
		send := func(e watch.Event) bool {
			select {
			case p.events <- e:
				return true
			case <-p.stopped:
				return false
			}
		}
		for _, e := range first {
			if !send(e) {
				return
			}
		}
		first = nil // the objects are not to be held as long as the watch lasts
		for e := range w.ResultChan() {
			if !send(e) {
				return
			}
		}
	})
	return p
}

func (p *prefixedWatch) ResultChan() <-chan watch.Event { return p.events }

// Stop ends the watch and waits for its goroutine.
func (p *prefixedWatch) Stop() {
	p.once.Do(func() { close(p.stopped) })
	p.Interface.Stop()
	p.group.Wait()
}

// resumesAt is where the informer opens its watch without a list; empty: nowhere.
func (i *Informer) resumesAt() string {
	if i.config.Relist {
		return ""
	}
	return i.config.ResumeAt
}

// resumes reports whether a list is the empty one that stands for the checkpoint. The caller holds mu.
func (i *Informer) resumes(resourceVersion string, items int) bool {
	if i.HasSynced() || i.resumesAt() == "" || resourceVersion != i.config.ResumeAt || items > 0 {
		return false
	}
	i.hasListed()
	if i.phase == listing { // the watch came first
		i.catchUp()
	}
	i.status.resumed(resourceVersion)
	i.log.Info("resumed from the checkpoint", "resourceVersion", resourceVersion, "objects", i.count.Load())
	return true
}

// awaitWatch notes that a list will stand for the checkpoint while the watch from there is not open: what an earlier process may
// have told already comes with that.
func (i *Informer) awaitWatch() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.phase = resuming
}

// watchOpened notes that a watch was opened: the first one brings what is behind the checkpoint.
func (i *Informer) watchOpened() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.phase == resuming {
		i.catchUp()
	}
}

// catchUp notes that the watch from the checkpoint is open. The caller holds mu.
func (i *Informer) catchUp() { i.phase, i.resumedAt = catchingUp, time.Now() }
