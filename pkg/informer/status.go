package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// How long a watch may be silent before it counts as stale. The API server sends bookmarks about once a minute on
// resources that its watch cache holds; on the others (Events) the only sign of life is the next watch request,
// at the latest after the ten minutes for which a Reflector asks.
const (
	bookmarkedSilence = 3 * time.Minute
	plainSilence      = 12 * time.Minute
)

// Status describes an informer at one moment.
type Status struct {
	Resource        schema.GroupVersionResource
	Namespace       string // empty: all
	Objects         int
	ResourceVersion string    // last one seen, in an event, a bookmark or a list
	LastContact     time.Time // when the API server was last heard of; zero if never
	Synced          bool      // the initial list was handed over
	Stale           bool      // the watch is silent for longer than a live one can be
	Forbidden       bool      // RBAC forbids to list or watch; retried
	Relists         int64     // lists after the first one
	Errors          int64     // failed requests
	LastError       string    // of a request; empty once one succeeded
}

// tracker collects an informer's status. It has its own lock, so that reading it never waits for handlers.
type tracker struct {
	resource  schema.GroupVersionResource
	namespace string
	now       func() time.Time

	mu          sync.Mutex
	rv          string
	lastContact time.Time
	bookmarks   bool
	relists     int64
	errors      int64
	lastErr     error  // of the last request; nil once one succeeded
	logged      string // the kind of failure that was logged last; empty once a request succeeded
}

func (t *tracker) init(config Config) {
	t.resource, t.namespace, t.now = config.Resource, config.Namespace, time.Now
}

func (t *tracker) name() string {
	name := groupResource(t.resource)
	if t.namespace != "" {
		name += " in " + t.namespace
	}
	return name
}

func (t *tracker) reached(rv string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rv, t.lastContact = rv, t.now()
}

func (t *tracker) bookmark() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bookmarks = true
}

// requested notes how a request went. It reports whether that is news: the first failure of its kind, or the first
// success after a failure.
func (t *tracker) requested(err error) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastErr = err
	before := t.logged
	if err == nil {
		t.lastContact, t.logged = t.now(), ""
		return before != ""
	}
	t.errors++
	t.logged = string(apierrors.ReasonForError(err))
	if t.logged == "" {
		t.logged = "no answer" // the text of a network error differs from one to the next
	}
	return t.logged != before
}

// relisted counts a list after the first one.
func (t *tracker) relisted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.relists++
}

func (t *tracker) snapshot(objects int, synced bool) Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{
		Resource: t.resource, Namespace: t.namespace, Objects: objects, ResourceVersion: t.rv,
		LastContact: t.lastContact, Synced: synced, Relists: t.relists, Errors: t.errors,
	}
	if t.lastErr != nil {
		s.LastError = t.lastErr.Error()
		s.Forbidden = apierrors.IsForbidden(t.lastErr) || apierrors.IsUnauthorized(t.lastErr)
	}
	limit := plainSilence
	if t.bookmarks {
		limit = bookmarkedSilence
	}
	s.Stale = synced && t.now().Sub(t.lastContact) > limit
	return s
}

// observedListWatch notes how requests went, and ends LISTs with the informer: the Reflector issues them with a
// context of its own that nobody cancels.
type observedListWatch struct {
	inner       cache.ListerWatcherWithContext
	status      *tracker
	log         *slog.Logger
	runCtx      context.Context //nolint:containedctx // the Reflector gives LIST no context that ends
	noWatchList bool
}

// IsWatchListSemanticsUnSupported is asked by the Reflector (k8s.io/client-go/util/watchlist).
func (l *observedListWatch) IsWatchListSemanticsUnSupported() bool { return l.noWatchList }

// List exists for the interface; the Reflector uses ListWithContext.
func (l *observedListWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(l.runCtx, options)
}

// Watch exists for the interface; the Reflector uses WatchWithContext.
func (l *observedListWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(l.runCtx, options)
}

func (l *observedListWatch) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := l.inner.ListWithContext(l.runCtx, options)
	l.note("list", err)
	return list, err
}

func (l *observedListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := l.inner.WatchWithContext(ctx, options)
	l.note("watch", err)
	return w, err
}

// note keeps the result of a request, and logs it if it is news: a resource that stays forbidden, or an API server
// that stays away, is one line and not one for each retry.
func (l *observedListWatch) note(verb string, err error) {
	if l.runCtx.Err() != nil || errors.Is(err, context.Canceled) {
		return // the informer is being ended
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", verb, err)
	}
	news := l.status.requested(err)
	switch {
	case news && err != nil:
		l.log.Warn("request failed, trying again with back-off", "err", err)
	case news:
		l.log.Info("API server answers again")
	case err != nil:
		l.log.Debug("request failed again", "err", err)
	}
}

func groupResource(r schema.GroupVersionResource) string { return r.GroupResource().String() }
