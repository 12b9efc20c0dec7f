package informer

import (
	"context"
	"io"
	"sync"
	"syscall"

	"github.com/deltabridge/deltabridge/pkg/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// ListerWatcher lists and watches one resource with a client of NewClient: its lists are *object.List, the objects of
// its events *object.Object, and *metav1.Status in an ERROR.
//
// It differs from client-go's own in what follows when a watch breaks. A connection that breaks, before the response
// or after it, does not make the Reflector list everything again: it opens its watch where the last one ended. (It
// does list after a watch that brought nothing and lasted less than a second.) Nor does a document in the stream that
// is no watch event (see package object): it ends the watch, so that the next one may bring it whole. If there is such
// a document in the next watch too, it is skipped there. A watch after one that skips is strict again.
type ListerWatcher struct {
	// Malformed, if not nil, is told of each document that is no watch event, with an error that wraps
	// object.ErrMalformed, and whether it was skipped: then a change of some object may be missing. Otherwise it is
	// asked for once more. Set it before the first use; it is called from the goroutines of the watches.
	Malformed func(err error, skipped bool)

	// Failed, if not nil, is given the ERROR event that ends a watch, before the watch gives it. Set it before the first use; it
	// is called from the goroutines of the watches.
	Failed func(*metav1.Status)

	// BeginList, if not nil, is called for each list, and for each watch that begins with one. The function that it
	// returns, if not nil, is called for each object of the list as it is read; an error ends the list. A watch-list may
	// bring, before it is complete, changes and deletions of what it brought. Set it before the first use; it is called
	// from the goroutines of the watches.
	// The function may wait, until the context of the request ends.
	BeginList func(context.Context) func(watch.EventType, *object.Object) error

	// ManagedFields keeps the managedFields of objects until the change was handed over. Set it before the first use.
	ManagedFields bool
	// Transform, if not nil, is given each object before anything else is. It may change the object's Raw, but not what the
	// Identity was read from. Set it before the first use; it is called from the goroutines of the watches.
	Transform func(*object.Object)

	client rest.Interface
	path   string
	tweak  func(*metav1.ListOptions)

	mu      sync.Mutex
	lenient bool                                        // the last watch was ended by a malformed document
	page    func(watch.EventType, *object.Object) error // of the list whose pages are being read
}

var (
	_ cache.ListerWatcher            = (*ListerWatcher)(nil)
	_ cache.ListerWatcherWithContext = (*ListerWatcher)(nil)
)

// ListWatch lists and watches a resource, in one namespace or with "" in all of them. tweak, if not nil, changes the
// options of each request: selectors, say.
func ListWatch(client rest.Interface, gvr schema.GroupVersionResource, namespace string, tweak func(*metav1.ListOptions)) *ListerWatcher {
	return &ListerWatcher{client: client, path: resourcePath(gvr, namespace), tweak: tweak}
}

// List is ListWithContext without a context, for the interface.
func (l *ListerWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext without a context, for the interface.
func (l *ListerWatcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options)
}

// ListWithContext returns an *object.List. The error is an apierrors.APIStatus if the API server gave one.
func (l *ListerWatcher) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list := &object.List{ManagedFields: l.ManagedFields}
	if err := l.request(options).Do(ctx).Into(list); err != nil {
		return nil, err
	}
	if l.Transform != nil {
		for _, o := range list.Items {
			l.Transform(o)
		}
	}
	if each := l.pageOf(ctx, options); each != nil {
		for _, o := range list.Items {
			if err := each(watch.Added, o); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// pageOf is what each object of a page of a list is passed through.
func (l *ListerWatcher) pageOf(ctx context.Context, options metav1.ListOptions) func(watch.EventType, *object.Object) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if options.Continue == "" {
		l.page = l.beginList(ctx)
	}
	return l.page
}

func (l *ListerWatcher) beginList(ctx context.Context) func(watch.EventType, *object.Object) error {
	if l.BeginList == nil {
		return nil
	}
	return l.BeginList(ctx)
}

// WatchWithContext opens a watch. Cancel the context or call Stop to end it; its channel is closed then.
func (l *ListerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	body, err := l.request(options).Stream(ctx)
	if err != nil {
		if ctx.Err() == nil && (utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err)) {
			return nil, unreachableError{err}
		}
		return nil, err
	}
	decoder := object.NewWatchDecoder(body, object.WatchOptions{
		ResourceVersion: options.ResourceVersion,
		Malformed:       l.malformed(),
		ManagedFields:   l.ManagedFields,
	})
	w := &eventStream{decoder: decoder, transform: l.Transform, failed: l.Failed, events: make(chan watch.Event, readAhead), stopped: make(chan struct{})}
	var each func(watch.EventType, *object.Object) error
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		each = l.beginList(ctx)
	}
	go w.run(each)
	return w, nil
}

func (l *ListerWatcher) request(options metav1.ListOptions) *rest.Request {
	if l.tweak != nil {
		l.tweak(&options)
	}
	return l.client.Get().AbsPath(l.path).MaxRetries(0). // it is repeated by whoever asked
								SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
}

// malformed decides for one watch about documents that are no watch event.
func (l *ListerWatcher) malformed() func(error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lenient := l.lenient
	l.lenient = false
	return func(err error) error {
		if l.Malformed != nil {
			l.Malformed(err, lenient)
		}
		if lenient {
			return nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lenient = true
		return io.ErrUnexpectedEOF
	}
}

// unreachableError is a connection that broke before the API server answered. To a Reflector it is what a refused one is:
// it waits and opens the watch again where it was. Any other error would make it list everything.
type unreachableError struct{ cause error }

func (u unreachableError) Error() string   { return u.cause.Error() }
func (u unreachableError) Unwrap() []error { return []error{syscall.ECONNREFUSED, u.cause} }

// readAhead is how many events of a watch are decoded before they are asked for. With none, each event costs the wake-up
// of a goroutine, which is as dear as decoding it; beyond eight nothing is gained, and memory is held for each watch.
const readAhead = 8

// eventStream is a watch.
type eventStream struct {
	decoder   *object.WatchDecoder
	transform func(*object.Object)
	failed    func(*metav1.Status)
	events    chan watch.Event
	stop      sync.Once
	stopped   chan struct{}
}

// ResultChan implements watch.Interface.
func (w *eventStream) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *eventStream) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.decoder.Close()
	})
}

// run reads the stream. each, if not nil, is called for the objects of the list that it begins with.
func (w *eventStream) run(each func(watch.EventType, *object.Object) error) {
	defer close(w.events)
	defer w.Stop()
	for {
		eventType, obj, err := w.decoder.Decode()
		if err != nil {
			return // how a stream ends is all the same to a Reflector: it goes on where this one was
		}
		o, ok := obj.(*object.Object)
		if ok && w.transform != nil && eventType != watch.Bookmark {
			w.transform(o)
		}
		if each != nil {
			switch {
			case !ok:
			case eventType == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
				each = nil // the list is complete
			case eventType != watch.Bookmark && each(eventType, o) != nil:
				return
			}
		}
		if status, bad := obj.(*metav1.Status); bad && w.failed != nil {
			w.failed(status)
		}
		event := watch.Event{Type: eventType, Object: obj}
		select {
		case w.events <- event: // alone it costs less than half
			continue
		default:
		}
		select {
		case w.events <- event:
		case <-w.stopped:
			return
		}
	}
}
