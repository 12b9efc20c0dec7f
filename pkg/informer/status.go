package informer

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// These constants define how long a watch may be silent before it counts as stale. On resources in its watch cache, the
// API server sends bookmarks about once a minute. On other resources (Events) the only sign of life is the next watch
// request, which the Reflector sends after at most ten minutes.
const (
	bookmarkedSilence = 3 * time.Minute
	plainSilence      = 12 * time.Minute
)

// Status describes an informer at one moment.
type Status struct {
	Name            string // Source.Name
	Resource        schema.GroupVersionResource
	Namespace       string // empty for all namespaces
	Selector        string // label and field selectors; empty if there are none; "(auxiliary)" for auxiliary informers
	Objects         int
	ResourceVersion string    // of the last event, bookmark or list
	LastContact     time.Time // time of the last response or event from the API server; zero if there was none
	Synced          bool      // the initial list was delivered
	Stale           bool      // the watch was silent, or a handler has blocked, for too long
	Forbidden       bool      // RBAC forbids lists or watches; the informer retries
	Excused         bool      // readiness does not require the informer; only package fleet sets it
	Relists         int64     // number of lists after the first one
	Resumed         bool      // the watch continued from the checkpoint without a list
	Changes         int64     // number of changes that the watch has brought
	Errors          int64     // number of failed requests
	FailingSince    time.Time // when the requests that currently fail began to fail; zero if none fail
	LastError       string    // last error of the requests that currently fail; empty if none fail
}

// tracker collects an informer's status. It has its own lock, so code that reads the status never waits for handlers.
type tracker struct {
	now func() time.Time

	mu        sync.Mutex
	status    Status // without the fields that snapshot sets
	bookmarks bool
	failing   map[string]error // the last error by verb: list or watch
}

// FailureKind returns the kind of failure that an error represents. Repeated failures of the same kind are logged only
// once.
func FailureKind(err error) string {
	kind := string(apierrors.ReasonForError(err))
	if kind == "" {
		kind = "no answer" // the texts of network errors differ from attempt to attempt
	}
	return kind
}

// update calls change while mu is held.
func (t *tracker) update(change func(*Status)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.status)
}

func (t *tracker) reached(resourceVersion string) {
	t.update(func(s *Status) { s.ResourceVersion, s.LastContact = resourceVersion, t.now() })
}

// requested records the result of a request. It reports whether the result is news: the first failure of its kind, or
// the success after which no requests fail any more. A watch that opens proves that no list is needed, so it clears all
// failures. A list proves nothing about watches, which RBAC may forbid separately.
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
		if len(t.failing) == 0 {
			t.status.FailingSince = time.Time{}
		}
		return failed && len(t.failing) == 0
	}
	t.status.Errors++
	if t.status.FailingSince.IsZero() {
		t.status.FailingSince = t.now()
	}
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
