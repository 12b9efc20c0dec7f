package informer

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"syscall"
	"time"

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

// ListerWatcher lists and watches one resource with a client that NewClient returned. Its lists are *object.List. The
// objects of its watch events are *object.Object, and *metav1.Status for ERROR events.
//
// It differs from client-go's ListWatch in how it handles broken watches:
//
//   - If a connection breaks before or after the response begins, the Reflector does not list everything again. It
//     opens its next watch at the position where the last one ended. (It does list after a watch that received no
//     events and lasted less than a second.)
//   - If the stream contains a document that is not a watch event (see package object), the watch ends, and the next
//     watch starts at the same position, where the API server may send the document intact. If the next watch ends at
//     the same position for the same reason, the Reflector receives an ERROR event and lists.
//   - If the stream ends with an ERROR event that says nothing about the position, for example because etcd has no
//     leader, the Reflector opens the next watch at the same position. If watches still fail there after
//     continuePatience, it lists.
type ListerWatcher struct {
	// MetadataOnly requests only the metadata of objects. It must be set before the first use.
	MetadataOnly bool

	// Failed is called with the error that ends a watch, before the watch reports the error. The error is an
	// apierrors.APIStatus, wraps object.ErrMalformed or, if the API server has sent nothing for too long, wraps
	// os.ErrDeadlineExceeded. Failed must be set before the first use. It is called from the goroutines of the watches.
	Failed func(error)

	// BeginList is called for each list, and for each watch that begins with a list. If it returns a function, that
	// function is called with each object of the list as the object is read, and returns the object that replaces it in
	// the list. If the function returns an error, the list ends. Before a watch-list is complete, it may contain changes
	// to and deletions of objects that it contained earlier. BeginList must be set before the first use. It is called from
	// the goroutines of the watches. The function may block until the context of the request ends.
	BeginList func(context.Context) EachFunc

	// ManagedFields keeps the managedFields of objects until the change has been delivered. It must be set before the
	// first use.
	ManagedFields bool
	// Transform, if not nil, is called with each object before any other code receives the object. It may change Raw, but
	// not the parts from which Identity was read. It must be set before the first use. It is called from the goroutines of
	// the watches.
	Transform func(schema.GroupVersionResource, *object.Object)

	client rest.Interface
	source Source

	mu           sync.Mutex
	malformedAt  string // position of the last malformed document
	failingAt    string // position of the last watch that ended with an error that says nothing about it
	failingSince time.Time
	page         EachFunc // function for the list whose pages are being read
}

var _ cache.ListerWatcherWithContext = (*ListerWatcher)(nil)

// ListWatch returns a ListerWatcher for the resource, namespace and selectors of a source.
func ListWatch(client rest.Interface, source Source) *ListerWatcher {
	return &ListerWatcher{
		Failed: func(error) {}, BeginList: func(context.Context) EachFunc { return nil },
		client: client, source: source,
	}
}

// ListWithContext returns an *object.List. If the API server returned an error response, the error is an
// apierrors.APIStatus.
func (l *ListerWatcher) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list := &object.List{ManagedFields: l.ManagedFields}
	if err := l.request(options).Do(ctx).Into(list); err != nil {
		return nil, err
	}
	if l.Transform != nil {
		for _, o := range list.Items {
			l.Transform(l.source.Resource, o)
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

// pageOf returns the function that is called with each object of a list page.
func (l *ListerWatcher) pageOf(ctx context.Context, options metav1.ListOptions) EachFunc {
	l.mu.Lock()
	defer l.mu.Unlock()
	if options.Continue == "" {
		l.page = l.BeginList(ctx)
	}
	return l.page
}

// WatchWithContext opens a watch. To end it, cancel the context or call Stop. The channel of the watch is then closed.
func (l *ListerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	body, err := l.request(options).Stream(ctx)
	if err != nil {
		if ctx.Err() == nil && (utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err)) {
			return nil, unreachableError{err}
		}
		return nil, err
	}
	decoder := object.NewWatchDecoder(body, options.ResourceVersion, l.ManagedFields)
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
	options.LabelSelector, options.FieldSelector = l.source.LabelSelector, l.source.FieldSelector
	request := l.client.Get().AbsPath(ResourcePath(l.source.Resource, l.source.Namespace)).
		SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		MaxRetries(0) // the caller retries
	if l.MetadataOnly {
		request.SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	}
	return request
}

// failed records the error that ends a watch at a position. It returns true if the Reflector must list. If it returns
// false, the Reflector should open its watch again at the same position.
func (l *ListerWatcher) failed(err error, position string) (list bool) {
	l.mu.Lock()
	switch {
	case errors.Is(err, object.ErrMalformed):
		list, l.malformedAt = l.malformedAt == position, position
	case saysNothing(err):
		if l.failingAt != position {
			l.failingAt, l.failingSince = position, time.Now()
		}
		list = time.Since(l.failingSince) >= continuePatience
	default:
		list = !errors.Is(err, errStalled)
	}
	l.mu.Unlock()
	l.Failed(err)
	return list
}

// unreachableError is the error of a connection that broke before the API server responded. The Reflector handles it
// like a refused connection: it waits and opens the watch again at the same position. After any other error it would
// list everything.
type unreachableError struct{ cause error }

func (u unreachableError) Error() string   { return u.cause.Error() }
func (u unreachableError) Unwrap() []error { return []error{syscall.ECONNREFUSED, u.cause} }

// readAhead is the number of watch events that are decoded in advance. Without read-ahead, every event would wake up a
// goroutine, which costs as much as decoding the event. More than eight events bring no benefit and use more memory per
// watch.
const readAhead = 8

// eventStream implements watch.Interface.
type eventStream struct {
	*watch.ProxyWatcher // provides the channels

	lister   *ListerWatcher
	decoder  *object.WatchDecoder
	position string // resourceVersion from which the next watch continues
	inList   bool   // the initial list of a watch-list is not complete yet
	events   chan<- watch.Event
}

// Stop implements watch.Interface.
func (w *eventStream) Stop() {
	w.ProxyWatcher.Stop()
	w.decoder.Close()
}

// run reads the stream. If each is not nil, run calls it for the objects of the list with which the stream begins.
func (w *eventStream) run(each EachFunc) {
	defer close(w.events)
	defer w.Stop()
	for {
		eventType, obj, err := w.decoder.Decode()
		if err != nil {
			isFailure := errors.Is(err, object.ErrMalformed) || errors.Is(err, errStalled)
			if isFailure && w.lister.failed(err, w.at()) {
				w.send(watch.Event{Type: watch.Error, Object: decodingErrors.AsObject(err)})
			}
			return // the Reflector reacts to every end of a stream in the same way: it continues at the last position
		}
		switch o := obj.(type) {
		case *object.Object:
			if obj, err = w.pass(eventType, o, each); err != nil {
				return
			}
		case *metav1.Status:
			if err := apierrors.FromObject(o); !w.lister.failed(err, w.at()) && !w.inList {
				obj = &apierrors.NewTooManyRequests(err.Error(), 0).ErrStatus // the Reflector requests this watch again
			}
		}
		if !w.send(watch.Event{Type: eventType, Object: obj}) {
			return
		}
	}
}

// decodingErrors creates the errors that client-go sends to a Reflector when it cannot decode an event.
var decodingErrors = apierrors.NewClientErrorReporter( //nolint:gochecknoglobals // constant in all but name
	http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")

// at returns a description of the position for failed. It distinguishes the initial list, because a watch cannot
// continue within a list.
func (w *eventStream) at() string {
	if w.inList {
		return "list at " + w.position
	}
	return w.position
}

// pass processes an object before any other code receives it. If it returns an error, the watch must end.
func (w *eventStream) pass(eventType watch.EventType, o *object.Object, each EachFunc) (_ *object.Object, err error) {
	switch {
	case eventType != watch.Bookmark:
		if w.lister.Transform != nil {
			w.lister.Transform(w.lister.source.Resource, o)
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

// send delivers an event. It returns false if the watch was stopped.
func (w *eventStream) send(event watch.Event) bool {
	select {
	case w.events <- event: // on its own, this select costs less than half as much as the one below
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
