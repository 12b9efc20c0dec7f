package informer

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	Selector        string // what is selected by label and field; empty: everything; "(auxiliary)" of auxiliary informers
	Objects         int
	ResourceVersion string    // last one seen, in an event, a bookmark or a list
	LastContact     time.Time // when the API server was last heard of; zero if never
	Synced          bool      // the initial list was handed over
	Stale           bool      // the watch is silent for longer than a live one can be, or a handler blocks for so long
	Forbidden       bool      // RBAC forbids to list or watch; retried
	Relists         int64     // lists after the first one
	Resumed         bool      // the watch continued where the checkpoint ended, without a list
	Refused         bool      // the checkpoint was refused: the cluster has not reached its resourceVersion
	Errors          int64     // failed requests
	LastError       string    // of what fails now; empty if nothing does
}

// tracker collects an informer's status. It has its own lock, so that reading the status never waits for handlers.
type tracker struct {
	now func() time.Time

	mu        sync.Mutex
	status    Status // without what snapshot adds
	bookmarks bool
	failing   map[string]error // the last error by verb: list or watch
}

// FailureKind names what kind of failure an error is: failures of one kind are news once.
func FailureKind(err error) string {
	kind := string(apierrors.ReasonForError(err))
	if kind == "" {
		kind = "no answer" // the text of a network error differs from one to the next
	}
	return kind
}

func (t *tracker) init(config Config) {
	selector := config.Selector
	if config.Auxiliary { // another informer may watch some of the same objects
		selector = "(auxiliary)"
	}
	t.status = Status{Resource: config.Resource, Namespace: config.Namespace, Selector: selector}
	t.now, t.failing = time.Now, map[string]error{}
}

func (t *tracker) update(change func(*Status)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.status)
}

func (t *tracker) reached(resourceVersion string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.ResourceVersion, t.status.LastContact = resourceVersion, t.now()
}

func (t *tracker) bookmarked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bookmarks = true
}

// requested notes how a request went. It reports whether that is news: the first failure of its kind, or the success
// after which nothing fails any more. A watch that opens proves that lists are not needed; a list proves nothing of
// watches, which RBAC may forbid alone.
func (t *tracker) requested(verb string, err error) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.status.LastContact = t.now()
		failed := len(t.failing) > 0
		delete(t.failing, verb)
		if verb == verbWatch {
			clear(t.failing)
		}
		return failed && len(t.failing) == 0
	}
	t.status.Errors++
	news = true
	for _, before := range t.failing {
		news = news && FailureKind(before) != FailureKind(err)
	}
	t.failing[verb] = err
	return news
}

func (t *tracker) snapshot(objects int, synced bool) Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Objects, s.Synced = objects, synced
	for verb, err := range t.failing {
		if s.LastError == "" || verb == verbWatch { // a failing watch matters most
			s.LastError = err.Error()
		}
		s.Forbidden = s.Forbidden || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	}
	limit := plainSilence
	if t.bookmarks {
		limit = bookmarkedSilence
	}
	s.Stale = synced && t.now().Sub(s.LastContact) > limit
	return s
}
