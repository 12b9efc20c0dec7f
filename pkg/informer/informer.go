package informer

import (
	"context"
	"fmt"
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

// Config says what an Informer watches.
type Config struct {
	Resource schema.GroupVersionResource
	// Namespace to watch; empty for all, and for cluster-scoped resources.
	Namespace string
	// Select restricts the informer to the objects for which it is true, by what of them can't change in place or is in their bytes;
	// nil selects all. Others are neither kept nor handed on. One that is not selected any more has left: see Leaver.
	Select func(*object.Object) bool
	// Within is Select and what the API server selects by in addition, as far as an object shows it. It is asked about Known if
	// Relist is set. Nil: all.
	Within func(*object.Object) bool
	// Selector is what is selected by label and field, in words.
	Selector string
	// ListWatch reaches the API server; its objects are *object.Object. It must end its requests with their context.
	ListWatch cache.ListerWatcherWithContext
	// NoWatchList makes the reflector LIST at the start, for servers whose watch-list never ends (aggregated ones).
	NoWatchList bool
	// Auxiliary says that no other scope asks for what the informer watches; see fleet.Scope.
	Auxiliary bool
	// Known are objects that the handlers already know. The first list is compared with them: unchanged ones are not
	// handed on, missing ones are deletions.
	Known []*object.Object
	// Source names what the informer watches, for a checkpoint. Optional.
	Source Source
	// ResumeAt is the resourceVersion at which Known was the state. The informer then lists nothing, and opens its watch
	// there. If the API server no longer has the history it lists, and tells what differs from Known; the gap is
	// announced. Empty: the informer begins with a list.
	ResumeAt string
	// Relist makes the informer list although ResumeAt is set, and hand on what differs from Known, as if the API server had no
	// history from there: Known is of another scope. What Within does not have of it, and the list does not show, has left.
	Relist bool
	// Probe asks the API server whether it has reached a resourceVersion; see NewProbe. A cluster that was restored from
	// a backup has not, and would accept the watch and stay silent. Nil: it is taken to have.
	Probe func(ctx context.Context, resourceVersion string) error
	// Record takes down what is handed on, and keeps the bytes of objects. Nil: nobody does, and the index holds the bytes.
	Record Record
	// Logger of the informer; nil is silent.
	Logger *slog.Logger
	// Connector waits for the API server while it can't be reached; nil is allowed.
	Connector *Connector
	// Backoff between lists and watches that the API server answers by an error; the zero value is 50 ms, growing to 10 s as
	// long as that goes on.
	Backoff wait.Backoff
}

// Observer is implemented by handlers that also want to know of the stream itself. The calls come in order with
// those for objects.
type Observer interface {
	// OnSynced follows the last object of the first list.
	OnSynced(resourceVersion string, objects int)
	// OnGap follows a re-list, also by another informer of the source: states after from and before to may be missing; final states and deletions are not.
	// It comes before the changes that the list brought.
	OnGap(from, to, why string)
}

// Positioner is implemented by handlers that want to know how far the informer is. OnPosition follows each change, each
// list as a whole, and each bookmark: everything up to resourceVersion was handed to all handlers.
type Positioner interface {
	OnPosition(resourceVersion string)
}

// Source says what an informer watches. Name is unique among the informers of a fleet, and the same in every process.
type Source struct {
	Name                                    string
	Resource                                schema.GroupVersionResource
	Namespace, LabelSelector, FieldSelector string // what the API server selects by
	// Scope says which objects of the resource and namespace are watched: two processes that watch the same have the same. Empty: all.
	Scope string
	// Defined says that a CustomResourceDefinition defines the resource, as far as is known: with that its objects are deleted.
	Defined bool
}

// Informer is a shared informer for one resource. Make it with New, add handlers, then Run it once.
type Informer struct {
	config  Config
	log     *slog.Logger
	record  Record // Config.Record, or one that does nothing
	indexer cache.Indexer
	count   atomic.Int64 // objects in the index
	status  tracker
	history history
	fetcher fetcher

	// mu is held while a change is written to the index and handed to all handlers, so that a handler that is added
	// meanwhile sees each object exactly once. A handler that blocks holds it: only those wait for it that add, remove
	// or list handlers, or restate objects.
	mu        sync.Mutex
	handlers  []*registration
	phase     phase
	ctx       context.Context // of Run, while that lasts; nil otherwise
	skipped   bool            // ctx has ended, and something was not handed over
	resumedAt time.Time       // when catchingUp began
	replayed  bool            // new handlers were given what the others know
	position  string          // everything up to this resourceVersion was handed over; empty: nothing was, by an earlier process neither
	synced    atomic.Bool     // the first list, or the checkpoint that stands for it, was handed over
}

// phase is how far an informer is.
type phase int

const (
	listing    phase = iota // the first list is not handed over
	resuming                // the checkpoint stands for the list, and the watch from there is not open
	catchingUp              // the watch is open, and brings what the previous process may have handed over already
	following               // a list was handed over
	hasEnded                // Run has returned
)

// New makes an informer that does nothing until Run.
func New(config Config) *Informer {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Backoff == (wait.Backoff{}) {
		config.Backoff = answerBackoff()
	}
	i := &Informer{
		config:  config,
		log:     config.Logger,
		indexer: cache.NewIndexer(keyOf, cache.Indexers{}),
	}
	if i.record = config.Record; i.record == nil {
		i.record = noRecord{}
	}
	i.fetcher.record = i.record
	i.know(config.Known)
	i.config.Known = nil // the index has them
	i.position = config.ResumeAt
	i.status.init(config)
	if l, ok := config.ListWatch.(*ListerWatcher); ok {
		l.BeginList, l.Failed = i.beginList, i.watchFailed
	}
	return i
}

// know makes objects what the first list is compared with.
func (i *Informer) know(objects []*object.Object) {
	for _, o := range objects {
		if i.config.Record != nil {
			o = o.Released(&i.fetcher)
		}
		_ = i.indexer.Add(o) // keyOf never fails on an *object.Object
	}
	i.count.Store(int64(len(i.indexer.ListKeys())))
}

// Succeed makes the informer go on where a predecessor ended: with what that knew, and from its position, so that what is
// missed in between is announced. The predecessor has ended, and this one does not run yet.
func (i *Informer) Succeed(predecessor *Informer) {
	i.know(predecessor.Objects())
	predecessor.mu.Lock() // it has ended
	defer predecessor.mu.Unlock()
	if predecessor.position != "" {
		i.position = predecessor.position
	}
}

// Source that the informer watches.
func (i *Informer) Source() Source { return i.config.Source }

// ResumesAt is the resourceVersion of the state that is known at the start; empty if nothing is.
func (i *Informer) ResumesAt() string { return i.config.ResumeAt }

// Relists reports whether the informer compares what is known at the start with a list: see Config.Relist.
func (i *Informer) Relists() bool { return i.config.Relist }

// Auxiliary reports whether only auxiliary scopes ask for the informer: see fleet.Scope.
func (i *Informer) Auxiliary() bool { return i.config.Auxiliary }

// Resource that the informer watches.
func (i *Informer) Resource() schema.GroupVersionResource { return i.config.Resource }

// GetIndexer gives the last known state of each object. It may be read at any time, and is ahead of the handlers by
// at most the change that they are being given. Nobody but the informer writes to it.
func (i *Informer) GetIndexer() cache.Indexer { return i.indexer }

// AddIndexers adds indices, also to a running informer, which has none of its own: each one costs memory for each object, and
// time for each change. The functions are given *object.Object, whose bytes they must not ask for.
func (i *Informer) AddIndexers(indexers cache.Indexers) error { return i.indexer.AddIndexers(indexers) }

// HasSynced reports whether the first list was handed to all handlers.
func (i *Informer) HasSynced() bool {
	return i.synced.Load()
}

// LastSyncResourceVersion returns the last resourceVersion of an event, a bookmark or a list.
func (i *Informer) LastSyncResourceVersion() string { return i.Status().ResourceVersion }

// Status returns the status of this moment. It never waits for handlers.
func (i *Informer) Status() Status { return i.status.snapshot(int(i.count.Load()), i.HasSynced()) }

// Run lists and watches until ctx ends, and returns when no handler is being called any more. It can be called once.
func (i *Informer) Run(ctx context.Context) error {
	logger := logr.Discard() // observedListWatch and a re-list log what matters; the Reflector would log responses, with Secrets
	ctx = klog.NewContext(ctx, logger)
	backoff := i.config.Backoff
	i.mu.Lock()
	i.ctx = ctx
	i.mu.Unlock()
	i.replay()
	name := i.config.Resource.GroupResource().String()
	reflector := cache.NewReflectorWithOptions(
		&observedListWatch{informer: i, runCtx: ctx, resumeAt: i.resumesAt()}, &object.Object{}, (*store)(i),
		cache.ReflectorOptions{Logger: &logger, Name: name, TypeDescription: name, Backoff: &backoff})
	reflector.RunWithContext(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.phase, i.ctx = hasEnded, nil
	return nil
}

// skip reports whether a change must not be handed over because Run is to end, and notes that. A change goes to all
// handlers or to none. The caller holds mu.
func (i *Informer) skip() bool {
	i.skipped = i.ctx != nil && (i.skipped || i.ctx.Err() != nil)
	return i.skipped
}

// DeleteAll hands on the deletion of every object that is still known, final state unknown: the resource itself
// was removed from the cluster. Call it after Run returned.
func (i *Informer) DeleteAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, o := range sorted(i.indexer.List()) {
		i.remove(o, unseen(o))
	}
}

// LeaveAll hands on that every object that is known left what is watched. Call it on an informer that does not run.
func (i *Informer) LeaveAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, o := range sorted(i.indexer.List()) {
		i.leave(o, o)
	}
}

// Objects gives all that is known, for the Known of a successor.
func (i *Informer) Objects() []*object.Object { return sorted(i.indexer.List()) }

func keyOf(obj any) (string, error) {
	o, ok := obj.(*object.Object)
	if !ok {
		return "", fmt.Errorf("informer holds *object.Object, not %T", obj)
	}
	return o.Key(), nil
}
