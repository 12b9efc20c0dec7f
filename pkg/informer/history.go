package informer

import (
	"context"
	"errors"
	"regexp"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// history notes the resourceVersion from which the API server still has the changes of a resource, after it could not
// continue a watch. A list of the state at that resourceVersion, and a watch from there, miss only earlier changes:
// almost none after a restart of the API server, whose history begins when it starts.
type history struct {
	mu     sync.Mutex
	oldest string // the watch can be opened there; empty if not known
	listed string // resourceVersion of the last list; empty if it was a list of the present
}

// tooOld matches the error of kube-apiserver for a watch: the requested resourceVersion, and the first one that it has.
var tooOld = regexp.MustCompile(`too old resource version: ([0-9]+) \(([0-9]+)\)`)

// watchFailed implements ListerWatcher.Failed.
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
	if h.listed == match[1] { // changes leave the history faster than it can be listed
		h.oldest = ""
	}
}

// isKnown reports whether take returns a resourceVersion.
func (h *history) isKnown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.oldest != ""
}

// take returns, once, the resourceVersion to list at, or "" for a list of the present.
func (h *history) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	oldest := h.oldest
	h.oldest, h.listed = "", oldest
	return oldest
}

// historyPage is the number of objects in a page of a list of an earlier state.
const historyPage = 500

// listHistory lists the state at the beginning of the API server's history. It returns nil if that is not known, or if
// the API server does not have that state any more.
func (l *observedListWatch) listHistory(ctx context.Context) *object.List {
	at := l.informer.history.take()
	if at == "" {
		return nil
	}
	options := metav1.ListOptions{
		ResourceVersion:      at,
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		Limit:                historyPage,
	}
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
