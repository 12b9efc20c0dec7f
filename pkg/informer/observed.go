package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/internal/pause"
)

const verbList, verbWatch = "list", "watch"

// observedListWatch lists and watches for the Reflector, which calls one method at a time. It records the results of
// requests, and ends all requests when the informer ends. The Reflector would not end them: the context of its LISTs is
// never canceled, and after some errors of a watch-list it sleeps until its back-off ends.
type observedListWatch struct {
	cache.ListerWatcher // nil: the Reflector calls the methods of cache.ListerWatcherWithContext instead

	informer  *Informer
	runCtx    context.Context //nolint:containedctx // the context that the Reflector passes to a LIST never ends
	resumeAt  string          // see resume; empty once the first list has begun
	notBefore time.Time       // earliest time of the next request, from Retry-After
	watched   bool            // a watch was opened, so RBAC allows watches, unless it has changed
	failing   time.Time       // since when the responses to watches are errors: see mayContinue; zero if they are not
}

// errListInstead makes the Reflector send a LIST when it has requested a watch-list.
var errListInstead = errors.New("a watch-list is not possible, so a list is requested instead")

// reach repeats a request until the API server responds. The Reflector waits during that time, so its back-off does not
// grow. reach records failures, but the caller must record a success.
func (l *observedListWatch) reach(ctx context.Context, verb string, request func() error) error {
	pause.For(ctx, time.Until(l.notBefore))
	err := l.informer.config.Connector.reach(ctx, func() error {
		err := request()
		if err != nil && !errors.Is(err, ErrFutureVersion) {
			l.informer.note(l.runCtx, verb, err)
		}
		return err
	})
	if delay := retryAfter(err); delay > 0 {
		l.notBefore = time.Now().Add(delay)
	}
	return err
}

// IsWatchListSemanticsUnSupported implements an interface that the Reflector checks for
// (k8s.io/client-go/util/watchlist).
func (l *observedListWatch) IsWatchListSemanticsUnSupported() bool {
	return l.informer.config.NoWatchList
}

// ListWithContext returns the empty list that replaces the first list after a restart (see resume), the state at the
// beginning of the API server's history, or the current state.
func (l *observedListWatch) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" && !l.informer.beginsWithList() {
		// "0" requests any state in the server's cache. That state may be older than the known one, and objects that it lacks
		// would count as deleted. An empty resourceVersion requests the current state.
		options.ResourceVersion = ""
	}
	if options.Continue != "" { // the Reflector sets no limit for the pages that follow the first page of listHistory
		options.Limit = cmp.Or(options.Limit, historyPage)
	} else {
		if list, err := l.resume(l.runCtx); list != nil || err != nil {
			return list, err
		}
		if list := l.listHistory(); list != nil {
			return list, nil
		}
	}
	return l.list(options)
}

func (l *observedListWatch) list(options metav1.ListOptions) (list runtime.Object, err error) {
	err = l.reach(l.runCtx, verbList, func() (err error) {
		list, err = l.informer.config.ListWatch.ListWithContext(l.runCtx, options)
		return err
	})
	if err == nil {
		l.informer.note(l.runCtx, verbList, nil)
	}
	return list, err
}

// WatchWithContext opens a watch, or a watch-list if the current state must be listed.
func (l *observedListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	list := options.SendInitialEvents != nil
	if list && (l.resumeAt != "" || l.informer.history.isKnown()) {
		return nil, errListInstead
	}
	var w watch.Interface
	err := l.reach(ctx, verbWatch, func() (err error) {
		if !list {
			err = l.checkPosition(ctx, options.ResourceVersion)
		}
		if err == nil {
			w, err = l.informer.config.ListWatch.WatchWithContext(ctx, options)
		}
		if unreachable(err) {
			l.failing = time.Time{} // this is not a response
		}
		return err
	})
	switch {
	case errors.Is(err, ErrFutureVersion):
		return nil, apierrors.NewResourceExpired(err.Error()) // the Reflector lists
	case !list && l.mayContinue(err):
		return nil, apierrors.NewTooManyRequests(err.Error(), 0) // the Reflector requests this watch again, and does not list
	case err == nil:
		l.watched, l.failing = true, time.Time{}
		l.informer.note(l.runCtx, verbWatch, nil)
		if !list {
			w = l.informer.watchOpened(ctx, w)
		}
	}
	if list && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		// The error must not wrap err, because for such errors the Reflector would sleep even after its context has ended.
		// Without a cause, it tries a LIST, and then waits only until its context ends.
		return nil, errors.New(err.Error())
	}
	return w, err
}

// continuePatience is how long a watch is requested again while the response is an error that says nothing about its
// position. Then the informer lists, because lists may still succeed.
const continuePatience = 5 * time.Minute

// mayContinue reports whether the watch may be possible at the same position after this error. If no watch was possible
// before, the informer lists: RBAC may allow lists only.
func (l *observedListWatch) mayContinue(err error) bool {
	if !saysNothing(err) {
		return false
	}
	if l.failing.IsZero() {
		l.failing = time.Now()
	}
	return (l.watched || l.informer.Status().Resumed) && time.Since(l.failing) < continuePatience
}

// saysNothing reports whether an error says nothing about the position of a watch: RBAC forbids it at the moment, or
// the API server, its etcd or a proxy fails. A list would lose the states since that position.
func saysNothing(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return false
	}
	switch answer.Status().Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// checkPosition returns ErrFutureVersion if the position of the informer is ahead of its cluster because etcd was
// restored from a backup. In that case the API server would accept a watch, but send no events until the cluster has
// caught up. If the API server was not reached, it returns that error. It ignores all other failures of the probe,
// because the watch will report the error.
func (l *observedListWatch) checkPosition(ctx context.Context, resourceVersion string) error {
	err := ErrFutureVersion
	if resourceVersion != Unreachable {
		probe := l.informer.config.Probe
		if probe == nil || resourceVersion == "" {
			return nil
		}
		err = probe(ctx, resourceVersion)
	}
	if errors.Is(err, ErrFutureVersion) {
		l.informer.log.Warn("checkpoint is ahead of the cluster, listing all objects; was etcd restored from a backup?",
			"resourceVersion", resourceVersion)
	} else if !unreachable(err) {
		return nil
	}
	return err
}

// note records the result of a request, and logs it if it differs from the previous result. So a resource that remains
// forbidden causes one warning and not one per retry. It ignores errors after ctx has ended.
func (i *Informer) note(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", verb, err)
	}
	news := i.status.requested(verb, err)
	switch {
	case news && err != nil:
		i.log.Warn("request failed, retrying", "err", err)
	case news:
		i.log.Info("requests succeed again")
	case err != nil:
		i.log.Debug("request failed again", "err", err)
	}
}
