package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
)

const verbList, verbWatch = "list", "watch"

// observedListWatch is what the Reflector lists and watches with. It notes how requests went, and ends with the
// informer what the Reflector would not: its LISTs have a context that nobody cancels, and after a watch-list that was
// refused it sleeps through the end of its own.
type observedListWatch struct {
	informer *Informer
	runCtx   context.Context //nolint:containedctx // the Reflector gives LIST no context that ends

	mu        sync.Mutex
	notBefore time.Time // what the API server asked for, by a Retry-After
}

// reach makes a request, again and again until the API server answers it. Meanwhile the Reflector, which would wait longer
// each time, waits here. It notes failures; that a list or a watch succeeded is noted by the caller.
func (l *observedListWatch) reach(ctx context.Context, verb string, request func() error) error {
	l.mu.Lock()
	notBefore := l.notBefore
	l.mu.Unlock()
	pause(ctx, time.Until(notBefore))
	err := l.informer.config.Connector.reach(ctx, func() error {
		err := request()
		if err != nil {
			l.note(verb, err)
		}
		return err
	})
	if asked := retryAfter(err); asked > 0 {
		l.mu.Lock()
		l.notBefore = time.Now().Add(asked)
		l.mu.Unlock()
	}
	return err
}

// IsWatchListSemanticsUnSupported is asked by the Reflector (k8s.io/client-go/util/watchlist).
func (l *observedListWatch) IsWatchListSemanticsUnSupported() bool {
	return l.informer.config.NoWatchList
}

// List exists for the interface; the Reflector uses ListWithContext.
func (l *observedListWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(l.runCtx, options)
}

// Watch exists for the interface; the Reflector uses WatchWithContext.
func (l *observedListWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(l.runCtx, options)
}

func (l *observedListWatch) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" && !l.informer.beginsWithList() {
		// "0" is whatever the server has cached, be it older than what is known: what is missing there would be taken for
		// deleted. Empty is the present state.
		options.ResourceVersion = ""
	}
	if options.Continue == "" {
		if list := l.listHistory(l.runCtx); list != nil {
			return list, nil
		}
	}
	var list runtime.Object
	err := l.reach(l.runCtx, verbList, func() (err error) {
		list, err = l.informer.config.ListWatch.ListWithContext(l.runCtx, options)
		return err
	})
	if err == nil {
		l.note(verbList, nil)
	}
	return list, err
}

func (l *observedListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	list := options.SendInitialEvents != nil
	if list {
		if w := l.watchHistory(ctx, options); w != nil {
			l.informer.watchOpened()
			return w, nil
		}
	}
	var w watch.Interface
	ahead := false
	err := l.reach(ctx, verbWatch, func() (err error) {
		if !list {
			ahead, err = l.isAhead(ctx, options.ResourceVersion)
		}
		if err == nil && !ahead {
			w, err = l.informer.config.ListWatch.WatchWithContext(ctx, options)
		}
		return err
	})
	switch {
	case ahead:
		return nil, apierrors.NewResourceExpired(ErrFutureVersion.Error()) // the Reflector lists
	case err == nil:
		l.note(verbWatch, nil)
		l.informer.watchOpened()
	}
	if list && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		// Without its cause, for which the Reflector would sleep, deaf to its context. So it tries a LIST, and then waits in
		// a way that ends.
		return nil, errors.New(err.Error())
	}
	return w, err
}

// isAhead reports whether the informer is ahead of its cluster, as it is after etcd was restored from a backup: a watch
// would be accepted and stay silent until the cluster has caught up. Only the API server's clear word counts; the error
// says that it gave none, because it was not reached.
func (l *observedListWatch) isAhead(ctx context.Context, resourceVersion string) (bool, error) {
	probe := l.informer.config.Probe
	if probe == nil || resourceVersion == "" {
		return false, nil
	}
	switch err := probe(ctx, resourceVersion); {
	case unreachable(err):
		return false, err
	case !errors.Is(err, ErrFutureVersion):
		return false, nil
	}
	l.informer.log.Warn("the cluster is behind what was seen of it, listing: was it restored from a backup?", "resourceVersion", resourceVersion)
	l.informer.status.refusedCheckpoint()
	return true, nil
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
	news := l.informer.status.requested(verb, err)
	switch {
	case news && err != nil:
		l.informer.log.Warn("request failed, trying again with back-off", "err", err)
	case news:
		l.informer.log.Info("API server answers again")
	case err != nil:
		l.informer.log.Debug("request failed again", "err", err)
	}
}
