package informer

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"syscall"

	"github.com/deltabridge/deltabridge/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// It differs from client-go's own in what follows when a watch breaks. A connection that breaks, before the response or
// after it, does not make the Reflector list everything again: it opens its watch where the last one ended. (It does
// list after a watch that brought nothing and lasted less than a second.) Nor does a document in the stream that is not
// a watch event (see package object): it ends the watch, so that the next one may bring it whole. If the next one ends
// at the same position for that, an ERROR event says so, after which the Reflector lists.
type ListerWatcher struct {
	// MetadataOnly asks for the metadata of objects instead of the objects. Set it before the first use.
	MetadataOnly bool

	// Failed, if not nil, is given the error that ends a watch, before the watch gives it: an apierrors.APIStatus, or
	// one that wraps object.ErrMalformed. Set it before the first use; it is called from the goroutines of the watches.
	Failed func(error)

	// BeginList, if not nil, is called for each list, and for each watch that begins with one. The function that it
	// returns, if not nil, is called for each object of the list as it is read, and gives what the list has in its
	// place; an error ends the list. A watch-list may bring, before it is complete, changes and deletions of what it
	// brought. Set it before the first use; it is called from the goroutines of the watches. The function may wait,
	// until the context of the request ends.
	BeginList func(context.Context) EachFunc

	// ManagedFields keeps the managedFields of objects until the change was handed over. Set it before the first use.
	ManagedFields bool
	// Transform, if not nil, is given each object before anything else is. It may change the object's Raw, but not what
	// the Identity was read from. Set it before the first use; it is called from the goroutines of the watches.
	Transform func(*object.Object)

	client rest.Interface
	path   string
	tweak  func(*metav1.ListOptions)

	mu          sync.Mutex
	malformedAt string   // position of the last malformed document
	page        EachFunc // of the list whose pages are being read
}

var _ cache.ListerWatcherWithContext = (*ListerWatcher)(nil)

// ListWatch lists and watches a resource, in one namespace or with "" in all of them. tweak, if not nil, changes the
// options of each request: selectors, say.
func ListWatch(
	client rest.Interface,
	gvr schema.GroupVersionResource,
	namespace string,
	tweak func(*metav1.ListOptions),
) *ListerWatcher {
	if tweak == nil {
		tweak = func(*metav1.ListOptions) {}
	}
	return &ListerWatcher{
		Failed: func(error) {}, BeginList: func(context.Context) EachFunc { return nil },
		client: client, path: ResourcePath(gvr, namespace), tweak: tweak,
	}
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
		for n, o := range list.Items {
			var err error
			if list.Items[n], err = each(watch.Added, o); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// pageOf is what each object of a page of a list is passed through.
func (l *ListerWatcher) pageOf(ctx context.Context, options metav1.ListOptions) EachFunc {
	l.mu.Lock()
	defer l.mu.Unlock()
	if options.Continue == "" {
		l.page = l.BeginList(ctx)
	}
	return l.page
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
		ManagedFields:   l.ManagedFields,
	})
	events := make(chan watch.Event, readAhead)
	w := &eventStream{
		ProxyWatcher: watch.NewProxyWatcher(events), events: events,
		lister: l, decoder: decoder, position: options.ResourceVersion,
	}
	var each EachFunc
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		w.inList = true
		each = l.BeginList(ctx)
	}
	go w.run(each)
	return w, nil
}

func (l *ListerWatcher) request(options metav1.ListOptions) *rest.Request {
	l.tweak(&options)
	request := l.client.Get().AbsPath(l.path).MaxRetries(0). // it is repeated by whoever asked
									SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
	if l.MetadataOnly {
		request.SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	}
	return request
}

// failed notes the error that ends a watch at a position. It reports whether the Reflector is to be told of it, so that
// it lists; else it opens its watch again at the position.
func (l *ListerWatcher) failed(err error, position string) (tell bool) {
	if tell = !errors.Is(err, object.ErrMalformed); !tell {
		l.mu.Lock()
		tell, l.malformedAt = l.malformedAt == position, position
		l.mu.Unlock()
	}
	l.Failed(err)
	return tell
}

// unreachableError is a connection that broke before the API server answered. To a Reflector it is what a refused one
// is: it waits and opens the watch again where it was. Any other error would make it list everything.
type unreachableError struct{ cause error }

func (u unreachableError) Error() string   { return u.cause.Error() }
func (u unreachableError) Unwrap() []error { return []error{syscall.ECONNREFUSED, u.cause} }

// readAhead is how many events of a watch are decoded before they are asked for. With none, each event costs the
// wake-up of a goroutine, which is as dear as decoding it; beyond eight nothing is gained, and memory is held for each
// watch.
const readAhead = 8

// eventStream is a watch.
type eventStream struct {
	*watch.ProxyWatcher // its channels

	lister   *ListerWatcher
	decoder  *object.WatchDecoder
	position string // resourceVersion from which the watch continues
	inList   bool   // the initial list is not complete
	events   chan<- watch.Event
}

// Stop implements watch.Interface.
func (w *eventStream) Stop() {
	w.ProxyWatcher.Stop()
	w.decoder.Close()
}

// run reads the stream. each, if not nil, is called for the objects of the list that it begins with.
func (w *eventStream) run(each EachFunc) {
	defer close(w.events)
	defer w.Stop()
	for {
		eventType, obj, err := w.decoder.Decode()
		if err != nil {
			if errors.Is(err, object.ErrMalformed) && w.lister.failed(err, w.at()) {
				w.send(watch.Event{Type: watch.Error, Object: decodingErrors.AsObject(err)})
			}
			return // how a stream ends is all the same to a Reflector: it goes on where this one was
		}
		switch o := obj.(type) {
		case *object.Object:
			if obj, err = w.pass(eventType, o, each); err != nil {
				return
			}
		case *metav1.Status:
			w.lister.failed(apierrors.FromObject(o), w.at())
		}
		if !w.send(watch.Event{Type: eventType, Object: obj}) {
			return
		}
	}
}

// decodingErrors are those that client-go gives a Reflector for what it can't decode.
var decodingErrors = apierrors.NewClientErrorReporter( //nolint:gochecknoglobals // constant in all but name
	http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")

// at names the position: within a list there is none.
func (w *eventStream) at() string {
	if w.inList {
		return "list at " + w.position
	}
	return w.position
}

// pass does what is to be done with an object before anybody else has it. After an error the watch has to end.
func (w *eventStream) pass(eventType watch.EventType, o *object.Object, each EachFunc) (_ *object.Object, err error) {
	switch {
	case eventType != watch.Bookmark:
		if w.lister.Transform != nil {
			w.lister.Transform(o)
		}
		if w.inList && each != nil {
			o, err = each(eventType, o)
		}
	case w.inList:
		w.inList = o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true"
	}
	if err == nil && !w.inList {
		w.position = o.ResourceVersion
	}
	return o, err
}

// send hands an event on; false if the watch was stopped.
func (w *eventStream) send(event watch.Event) bool {
	select {
	case w.events <- event: // alone it costs less than half
		return true
	default:
	}
	select {
	case w.events <- event:
		return true
	case <-w.StopChan():
		return false
	}
}
