package informer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Config configures an Informer.
type Config struct {
	// Source says what to watch, and identifies it in a checkpoint.
	Source Source
	// Select reports whether the informer keeps and delivers the objects of a namespace. If it is nil, all namespaces are
	// selected.
	Select func(namespace string) bool
	// Within reports whether an object passes Select and, as far as the object's JSON shows, the selectors that the API
	// server evaluates. It is nil without such selectors. If Relist is set, the informer calls it for the objects in
	// Known.
	Within func(*object.Object) bool
	// Selector describes the label and field selectors, for Status.
	Selector string
	// ListWatch lists and watches *object.Objects. Its requests must end when their context ends.
	ListWatch cache.ListerWatcherWithContext
	// NoWatchList makes the informer start with a LIST instead of a watch-list. It is for (aggregated) servers whose
	// watch-lists never end.
	NoWatchList bool
	// Auxiliary reports whether only auxiliary scopes select these objects; see fleet.Scope.
	Auxiliary bool
	// Known contains the objects that the handlers already know. The informer compares them with the first list: it does
	// not deliver unchanged objects, and it reports missing objects as deleted.
	Known []*object.Object
	// ResumeAt is the resourceVersion of the state in Known. The informer starts its watch at this version, without
	// listing first. If the API server no longer has the history since then, the informer announces a gap, lists, and
	// delivers the differences from Known. If ResumeAt is empty, the informer begins with a list.
	ResumeAt string
	// Relist makes the informer list although ResumeAt is set, because Known belongs to a different scope. The informer
	// delivers the differences from Known. An object in Known that the list does not contain has left if Within returns
	// false for it. Otherwise it was deleted.
	Relist bool
	// Probe returns ErrFutureVersion if the cluster has not reached a resourceVersion; see NewProbe. The API server of a
	// cluster that was restored from a backup would accept a watch at such a resourceVersion, but send no events. If Probe
	// is nil, the informer does not check this.
	Probe func(ctx context.Context, resourceVersion string) error
	// Record stores the changes to be delivered and the bytes of objects. If it is nil, nothing is stored, and the index
	// contains the bytes.
	Record Record
	// Logger receives the informer's log messages. If it is nil, nothing is logged.
	Logger *slog.Logger
	// Connector waits for the API server while it is unavailable. It may be nil.
	Connector *Connector
}

// Observer is an optional interface for handlers that process events about the stream itself. Its methods are called in
// order with the methods for objects.
type Observer interface {
	// OnSynced is called after the last object of the first list.
	OnSynced(resourceVersion string, objects int)
	// OnGap is called after this or another informer of the source has listed again, before the changes that the list
	// revealed are delivered. States after from and before to may be missing, but no final states or deletions.
	OnGap(from, to, why string)
}

// Positioner is an optional interface of handlers. OnPosition is called after each change, each list and each bookmark,
// when all changes up to resourceVersion have been delivered to all handlers. It is also called for a bookmark with the
// same resourceVersion as before, which shows that nothing has happened.
type Positioner interface {
	OnPosition(resourceVersion string)
}

// Source describes the objects that an informer watches. Name is unique among the informers of a fleet, and is the same
// in every process. Without a checkpoint, Name may be empty. A checkpoint stores sources as JSON.
type Source struct {
	Name     string                      `json:"name"`
	Resource schema.GroupVersionResource `json:"resource"`
	// Namespace is empty for all namespaces and for cluster-scoped resources.
	Namespace string `json:"namespace,omitempty"`
	// LabelSelector and FieldSelector are evaluated by the API server.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Scope describes which objects of the resource and namespace are watched. Equal scopes select the same objects. If
	// Scope is empty, all objects are watched.
	Scope string `json:"scope,omitempty"`
	// Defined reports whether, as far as is known, a CustomResourceDefinition defines the resource. When the definition is
	// deleted, its objects are deleted too.
	Defined bool `json:"defined,omitempty"`
}

// Informer is a shared informer for one resource. Create it with New, add handlers, and then call Run once.
type Informer struct {
	config  Config
	log     *slog.Logger
	record  Record // Config.Record, or a noRecord
	index   cache.Store
	count   atomic.Int64 // number of objects in the index
	changes atomic.Int64 // number of changes that the watch has brought
	status  tracker
	history history
	fetcher fetcher
	backoff wait.Backoff // between lists and watches to which the API server responds with errors

	// mu is held while a change is written to the index and delivered to all handlers. While a handler blocks, resyncs and
	// calls that list handlers wait.
	mu        sync.Mutex
	handlers  []*registration
	ctx       context.Context // context of Run; nil while Run is not active
	ended     bool            // Run has returned
	skipped   bool            // ctx has ended, and at least one change was not delivered
	relisting bool            // a list that continues from known objects is being delivered; it is delivered as a whole
	resuming  bool            // the state is perhaps older than what the previous process sent, and no watch is open
	resumed   *resumedWatch   // the watch that continues from that state, until CaughtUp returns true; nil otherwise
	position  string          // all changes up to this resourceVersion were delivered by this process or the previous one
	synced    atomic.Bool     // the first list was delivered, or a checkpoint replaced it
}

// New returns an informer. It does nothing until Run is called.
func New(config Config) *Informer {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	i := &Informer{
		config: config,
		log:    config.Logger,
		index:  newIndex(),
		status: tracker{now: time.Now, failing: map[string]error{}},

		backoff: answerBackoff(),
	}
	i.status.status = Status{
		Name: config.Source.Name, Resource: i.Resource(), Namespace: config.Source.Namespace, Selector: config.Selector,
	}
	if config.Auxiliary { // another informer may watch some of the same objects
		i.status.status.Selector = "(auxiliary)"
	}
	if i.record = config.Record; i.record == nil {
		i.record = noRecord{}
	}
	i.fetcher.record = i.record
	i.know(config.Known)
	i.config.Known = nil // the index contains them
	i.position = config.ResumeAt
	if l, ok := config.ListWatch.(*ListerWatcher); ok {
		l.BeginList, l.Failed = i.beginList, i.watchFailed
	}
	return i
}

// know adds objects to the index, with which the first list will be compared.
func (i *Informer) know(objects []*object.Object) {
	for _, o := range objects {
		i.enter(o)
	}
	i.count.Store(int64(len(i.index.ListKeys())))
}

// Succeed makes the informer continue from the objects and the position of a predecessor, so it announces a gap if it
// misses states after that position. The predecessor must have ended, and this informer must not be running yet. If the
// predecessor has not delivered the known objects to all handlers that did not know them, AddEventHandlerWithReplay's
// handlers of this informer receive the objects of its list as their initial list.
func (i *Informer) Succeed(predecessor *Informer) {
	i.know(predecessor.Objects())
	predecessor.mu.Lock() // not contended, because the predecessor has ended
	defer predecessor.mu.Unlock()
	if predecessor.position == "" {
		return
	}
	i.position = predecessor.position
	waits, knows := false, false
	for _, r := range predecessor.handlers {
		waits, knows = waits || r.waits, knows || r.mayKnow()
	}
	for _, r := range i.handlers {
		r.waits, r.knows = waits && r.replays, r.knows || knows
	}
}

// Source returns the source that the informer watches.
func (i *Informer) Source() Source { return i.config.Source }

// ResumesAt returns the resourceVersion of the state that is known when the informer starts, or "" if no state is
// known.
func (i *Informer) ResumesAt() string { return i.config.ResumeAt }

// Relists reports whether the informer lists the objects when it starts, although it knows their previous states, and
// compares the two; see Config.Relist.
func (i *Informer) Relists() bool { return i.config.Relist }

// Auxiliary reports whether only auxiliary scopes select the informer's objects; see fleet.Scope.
func (i *Informer) Auxiliary() bool { return i.config.Auxiliary }

// Resource returns the resource that the informer watches.
func (i *Informer) Resource() schema.GroupVersionResource { return i.config.Source.Resource }

// HasSynced reports whether the first list was delivered to all handlers.
func (i *Informer) HasSynced() bool { return i.synced.Load() }

// Status returns the current status. It never waits for handlers.
func (i *Informer) Status() Status {
	s := i.status.snapshot(int(i.count.Load()), i.HasSynced())
	s.Changes = i.changes.Load()
	return s
}

// Run lists and watches until ctx ends. It returns after the last handler call has returned. It must be called only
// once.
func (i *Informer) Run(ctx context.Context) error {
	// observedListWatch and announceGap log the relevant events. The Reflector's own log messages would contain response
	// bodies, including Secrets.
	logger := logr.Discard()
	ctx = klog.NewContext(ctx, logger)
	i.mu.Lock()
	i.ctx = ctx
	i.mu.Unlock()
	i.replay()
	name := i.Resource().GroupResource().String()
	reflector := cache.NewReflectorWithOptions(
		&observedListWatch{informer: i, runCtx: ctx, resumeAt: i.resumesAt()}, &object.Object{}, (*store)(i),
		cache.ReflectorOptions{Logger: &logger, Name: name, TypeDescription: name, Backoff: &i.backoff})
	reflector.RunWithContext(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended, i.ctx = true, nil
	return nil
}

// skip reports whether a change must not be delivered because the context of Run has ended. If so, it records that a
// change was skipped. Every change is delivered to all handlers or to none. The caller must hold mu.
func (i *Informer) skip() bool {
	i.skipped = i.ctx != nil && !i.relisting && (i.skipped || i.ctx.Err() != nil)
	return i.skipped
}

// Store returns the store that Run fills. A caller that has no API server, and does not call Run, can deliver lists and
// changes with it, as a Reflector does: first Replace, then Add, Update or Delete, each followed by
// UpdateResourceVersion. It must be used by one goroutine only.
func (i *Informer) Store() interface {
	cache.ReflectorStore
	cache.ResourceVersionUpdater
} {
	return (*store)(i)
}

// DeleteAll reports every known object as deleted, with FinalStateUnknown set. It is for a resource that was removed
// from the cluster. It must not be called while the informer runs.
func (i *Informer) DeleteAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range i.entries() {
		o := i.object(e)
		i.remove(o, unseen(o), nil)
	}
}

// LeaveAll reports every known object to the handlers as left. It must not be called while the informer runs.
func (i *Informer) LeaveAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range i.entries() {
		o := i.object(e)
		i.remove(o, o, o)
	}
}
