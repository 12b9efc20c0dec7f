package informer

import (
	"context"
	"errors"
	"regexp"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// history notes from where the API server still has the changes of a resource, when it could not continue a watch. A list of
// the state at that resourceVersion, in place of the present one, and a watch from there, miss only what came before. After
// a restart of the API server that is next to nothing, however late the list is: its history begins when it starts.
type history struct {
	mu     sync.Mutex
	oldest string // the watch can be opened there; empty: not known
	listed string // the last list was of this resourceVersion; empty: of the present
}

// tooOld is how kube-apiserver refuses a watch: the resourceVersion that was asked for, and the first one that could be.
var tooOld = regexp.MustCompile(`too old resource version: ([0-9]+) \(([0-9]+)\)`)

// watchFailed is a ListerWatcher.Failed.
func (i *Informer) watchFailed(err error) {
	if errors.Is(err, object.ErrMalformed) && i.status.requested(verbWatch, err) {
		i.log.Warn("document in the watch is not an event, watching again", "after", i.LastSyncResourceVersion(), "err", err)
	}
	match := tooOld.FindStringSubmatch(err.Error())
	if match == nil {
		return
	}
	h := &i.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.oldest = match[2]
	if h.listed == match[1] { // the history goes faster than it can be listed
		h.oldest = ""
	}
}

// take gives, once, the resourceVersion to list at; empty for a list of the present.
func (h *history) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	oldest := h.oldest
	h.oldest, h.listed = "", oldest
	return oldest
}

// historyPage is how many objects a page of a list of an earlier state has.
const historyPage = 500

// listHistory lists the state at the beginning of the API server's history. Nil if that is not known, or the API server does not
// have that state any more.
func (l *observedListWatch) listHistory(ctx context.Context) *object.List {
	at := l.informer.history.take()
	if at == "" {
		return nil
	}
	options := metav1.ListOptions{ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: historyPage}
	var all *object.List
	for {
		var page *object.List
		err := l.reach(ctx, verbList, func() error {
			list, err := l.informer.config.ListWatch.ListWithContext(ctx, options)
			page, _ = list.(*object.List)
			return err
		})
		switch {
		case err != nil || page == nil:
			l.informer.log.Debug("no list of an earlier state", "resourceVersion", at, "err", err)
			return nil
		case all == nil:
			all = page
		default:
			all.Items = append(all.Items, page.Items...)
		}
		if page.Continue == "" {
			break
		}
		options = metav1.ListOptions{Continue: page.Continue, Limit: historyPage}
	}
	if all.ResourceVersion != at {
		return nil
	}
	all.ListMeta = metav1.ListMeta{ResourceVersion: at}
	return all
}

// watchHistory answers a watch-list by the state at the beginning of the API server's history and a watch from there. Nil as of
// listHistory.
func (l *observedListWatch) watchHistory(ctx context.Context, options metav1.ListOptions) watch.Interface {
	list := l.listHistory(ctx)
	if list == nil {
		return nil
	}
	w, err := l.watchFrom(ctx, options, list.ResourceVersion)
	if err != nil {
		return nil
	}
	events := make([]watch.Event, 0, len(list.Items)+1)
	for _, o := range list.Items {
		events = append(events, watch.Event{Type: watch.Added, Object: o})
	}
	return newPrefixedWatch(w, append(events, watch.Event{Type: watch.Bookmark, Object: object.NewBookmark(list.ResourceVersion)})...)
}

// watchFrom opens a plain watch in place of a watch-list.
func (l *observedListWatch) watchFrom(ctx context.Context, options metav1.ListOptions, at string) (w watch.Interface, err error) {
	// The API server refuses a resourceVersionMatch on a watch without initial events.
	options.SendInitialEvents, options.ResourceVersionMatch, options.ResourceVersion = nil, "", at
	err = l.reach(ctx, verbWatch, func() (err error) {
		w, err = l.informer.config.ListWatch.WatchWithContext(ctx, options)
		return err
	})
	if err == nil {
		l.note(verbWatch, nil)
	}
	return w, err
}
