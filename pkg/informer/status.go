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

// tracker collects an informer's status. It has its own lock, so that reading it never waits for handlers.
type tracker struct {
	resource  schema.GroupVersionResource
	namespace string
	selector  string
	now       func() time.Time

	mu          sync.Mutex
	rv          string
	lastContact time.Time
	bookmarks   bool
	relists     int64
	didResume   bool
	didRefuse   bool
	errors      int64
	failing     map[string]failure // by verb: list or watch
}

// failure is how a request failed last.
type failure struct {
	kind string
	err  error
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
	t.selector = config.Selector
	if config.Auxiliary { // another informer may watch a part of the same
		t.selector = "(auxiliary)"
	}
	t.resource, t.namespace, t.now = config.Resource, config.Namespace, time.Now
	t.failing = map[string]failure{}
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

// requested notes how a request went. It reports whether that is news: the first failure of its kind, or the success
// after which nothing fails any more. A watch that opens proves that lists are not needed; a list proves nothing of
// watches, which RBAC may forbid alone.
func (t *tracker) requested(verb string, err error) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.lastContact = t.now()
		failed := len(t.failing) > 0
		delete(t.failing, verb)
		if verb == verbWatch {
			clear(t.failing)
		}
		return failed && len(t.failing) == 0
	}
	t.errors++
	f := failure{FailureKind(err), err}
	news = true
	for _, before := range t.failing {
		news = news && before.kind != f.kind
	}
	t.failing[verb] = f
	return news
}

func (t *tracker) position() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rv
}

func (t *tracker) resumed(rv string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.didResume, t.rv, t.lastContact = true, rv, t.now()
}

func (t *tracker) refusedCheckpoint() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.didRefuse = true
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
		Resource: t.resource, Namespace: t.namespace, Selector: t.selector, Objects: objects, ResourceVersion: t.rv,
		LastContact: t.lastContact, Synced: synced, Relists: t.relists, Resumed: t.didResume, Refused: t.didRefuse, Errors: t.errors,
	}
	for verb, f := range t.failing {
		if s.LastError == "" || verb == verbWatch { // without a watch all else is no use
			s.LastError = f.err.Error()
		}
		s.Forbidden = s.Forbidden || apierrors.IsForbidden(f.err) || apierrors.IsUnauthorized(f.err)
	}
	limit := plainSilence
	if t.bookmarks {
		limit = bookmarkedSilence
	}
	s.Stale = synced && t.now().Sub(t.lastContact) > limit
	return s
}

func groupResource(r schema.GroupVersionResource) string { return r.GroupResource().String() }
