package informer

import (
	"errors"
	"regexp"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// history is used after the API server could not continue a watch. It records the oldest resourceVersion from which the
// server still has all later changes. If the informer lists the state at this resourceVersion and watches from there,
// it misses only earlier changes. After a restart of the API server it misses almost none, because the server's history
// begins when the server starts.
type history struct {
	mu     sync.Mutex
	oldest string // resourceVersion at which a watch can be opened; empty if unknown
	listed string // resourceVersion of the last list of an earlier state; empty if the last list was of the current state
}

// tooOld matches the error that kube-apiserver returns for a watch. The groups are the requested resourceVersion and
// the oldest one that the server can serve.
var tooOld = regexp.MustCompile(`too old resource version: ([0-9]+) \(([0-9]+)\)`)

// watchFailed implements ListerWatcher.Failed.
func (i *Informer) watchFailed(err error) {
	isFailure := errors.Is(err, object.ErrMalformed) || errors.Is(err, errStalled) || saysNothing(err)
	if isFailure && i.status.requested(verbWatch, err) {
		i.log.Warn("watch failed, restarting it", "after", i.Status().ResourceVersion, "err", err)
	}
	match := tooOld.FindStringSubmatch(err.Error())
	if match == nil {
		return
	}
	h := &i.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.oldest = match[2]
	if h.listed == match[1] { // the server drops changes from its history faster than the resource can be listed
		h.oldest = ""
	}
}

// isKnown reports whether take returns a resourceVersion.
func (h *history) isKnown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.oldest != ""
}

// take returns the resourceVersion at which to list, and forgets it. It returns "" if the informer should list the
// current state.
func (h *history) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	oldest := h.oldest
	h.oldest, h.listed = "", oldest
	return oldest
}

// hasListed reports whether the last list was of an earlier state, with this resourceVersion.
func (h *history) hasListed(resourceVersion string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listed != "" && h.listed == resourceVersion
}

// historyPage is the page size, in objects, of a list of an earlier state.
const historyPage = 500

// listHistory lists the first page of the state at the beginning of the API server's history. It returns nil if that
// resourceVersion is unknown or if the API server no longer has the state.
func (l *observedListWatch) listHistory() runtime.Object {
	at := l.informer.history.take()
	if at == "" {
		return nil
	}
	list, err := l.list(metav1.ListOptions{
		ResourceVersion:      at,
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		Limit:                historyPage,
	})
	if page, ok := list.(*object.List); !ok || page.ResourceVersion != at {
		l.informer.log.Debug("cannot list an earlier state, listing the current state", "resourceVersion", at, "err", err)
		return nil
	}
	return list
}
