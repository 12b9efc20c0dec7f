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
	// Select reports whether the informer keeps and hands on an object; nil selects all. An object that is not selected
	// any more has left: see Leaver.
	Select func(*object.Object) bool
	// Within reports whether an object passes Select and, as far as its JSON shows, the selectors of the API server. It
	// is used for Known if Relist is set. Nil: all objects pass.
	Within func(*object.Object) bool
	// Selector describes the label and field selectors, for Status.
	Selector string
	// ListWatch lists and watches *object.Objects. Its requests must end with their context.
	ListWatch cache.ListerWatcherWithContext
	// NoWatchList makes the informer LIST at the start, for (aggregated) servers whose watch-list never ends.
	NoWatchList bool
	// Auxiliary says that only auxiliary scopes select these objects; see fleet.Scope.
	Auxiliary bool
	// Known are objects that the handlers already know. The first list is compared with them: unchanged ones are not
	// handed on, missing ones are deletions.
	Known []*object.Object
	// Source identifies in a checkpoint what the informer watches. Optional.
	Source Source
	// ResumeAt is the resourceVersion of the state in Known. The informer opens its watch there, without a list. If the
	// API server no longer has the history, the informer announces a gap, lists, and hands on the differences from
	// Known. If ResumeAt is empty, the informer begins with a list.
	ResumeAt string
	// Relist makes the informer list although ResumeAt is set, because Known is of another scope. It hands on the
	// differences from Known. An object of Known that the list does not show has left if Within is false for it, and is
	// deleted otherwise.
	Relist bool
	// Probe returns ErrFutureVersion if the cluster has not reached a resourceVersion; see NewProbe. A cluster that was
	// restored from a backup would accept a watch there, and stay silent. Nil: no probe.
	Probe func(ctx context.Context, resourceVersion string) error
	// Record stores what is handed on, and the bytes of objects. Nil: nothing is stored, and the index holds the bytes.
	Record Record
	// Logger of the informer; nil is silent.
	Logger *slog.Logger
	// Connector waits for the API server while it is unavailable; nil is allowed.
	Connector *Connector
	// Backoff between lists and watches for which the API server returns errors. The zero value grows from 50 ms to 10
	// s.
	Backoff wait.Backoff
}

// Observer is an optional interface of handlers, for events of the stream itself. Its methods are called in order with
// the methods for objects.
type Observer interface {
	// OnSynced is called after the last object of the first list.
	OnSynced(resourceVersion string, objects int)
	// OnGap is called after a re-list, also by another informer of the source, and before the changes that the list
	// brought. States after from and before to may be missing; final states and deletions are not.
	OnGap(from, to, why string)
}

// Positioner is an optional interface of handlers. OnPosition is called after each change, each list and each bookmark:
// everything up to resourceVersion was handed to all handlers.
type Positioner interface {
	OnPosition(resourceVersion string)
}

// Source describes what an informer watches. Name is unique among the informers of a fleet, and the same in every
// process.
type Source struct {
	Name                                    string
	Resource                                schema.GroupVersionResource
	Namespace, LabelSelector, FieldSelector string // as the API server evaluates them
	// Scope describes which objects of the resource and namespace are watched. Equal scopes select equal objects.
	// Empty: all.
	Scope string
	// Defined says that, as far as is known, a CustomResourceDefinition defines the resource: when it is deleted, so
	// are the objects.
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
	// meanwhile sees each object exactly once. While a handler blocks, adding and listing handlers and resyncs wait.
	mu        sync.Mutex
	handlers  []*registration
	phase     phase
	ctx       context.Context // of Run while it runs; nil otherwise
	skipped   bool            // ctx has ended, and a change was not handed over
	resumedAt time.Time       // when catchingUp began
	replayed  bool            // new handlers were given what the others know
	position  string          // everything up to this resourceVersion was handed over, by this process or the previous one
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

// know adds objects to the index, with which the first list is compared.
func (i *Informer) know(objects []*object.Object) {
	for _, o := range objects {
		if i.config.Record != nil {
			o = o.Released(&i.fetcher)
		}
		_ = i.indexer.Add(o) // keyOf never fails on an *object.Object
	}
	i.count.Store(int64(len(i.indexer.ListKeys())))
}

// Succeed makes the informer continue from the objects and the position of a predecessor, so that it announces a gap if
// it misses states in between. The predecessor must have ended, and this informer must not run yet.
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

// ResumesAt returns the resourceVersion of the state that is known at the start, or "" if none is known.
func (i *Informer) ResumesAt() string { return i.config.ResumeAt }

// Relists reports whether the informer compares the state that is known at the start with a list: see Config.Relist.
func (i *Informer) Relists() bool { return i.config.Relist }

// Auxiliary reports whether only auxiliary scopes select these objects: see fleet.Scope.
func (i *Informer) Auxiliary() bool { return i.config.Auxiliary }

// Resource that the informer watches.
func (i *Informer) Resource() schema.GroupVersionResource { return i.config.Resource }

// GetIndexer returns the index with the last known state of each object. It may be read at any time, and is ahead of
// the handlers by at most the change that they are being given. Callers must not write to it.
func (i *Informer) GetIndexer() cache.Indexer { return i.indexer }

// AddIndexers adds indices, also to a running informer. Each index costs memory for each object, and time for each
// change. The functions are given an *object.Object and must not call Bytes on it.
func (i *Informer) AddIndexers(indexers cache.Indexers) error { return i.indexer.AddIndexers(indexers) }

// HasSynced reports whether the first list was handed to all handlers.
func (i *Informer) HasSynced() bool {
	return i.synced.Load()
}

// LastSyncResourceVersion returns the last resourceVersion of an event, a bookmark or a list.
func (i *Informer) LastSyncResourceVersion() string { return i.Status().ResourceVersion }

// Status returns the status of this moment. It never waits for handlers.
func (i *Informer) Status() Status { return i.status.snapshot(int(i.count.Load()), i.HasSynced()) }

// Run lists and watches until ctx ends, and returns after the last call of a handler has returned. It can be called
// once.
func (i *Informer) Run(ctx context.Context) error {
	// observedListWatch and a re-list log what matters; the Reflector would log responses, with Secrets.
	logger := logr.Discard()
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

// skip reports whether a change must not be handed over because ctx of Run has ended, and notes that. A change goes to
// all handlers or to none. The caller holds mu.
func (i *Informer) skip() bool {
	i.skipped = i.ctx != nil && (i.skipped || i.ctx.Err() != nil)
	return i.skipped
}

// DeleteAll hands on the deletion of every known object, with FinalStateUnknown, after the resource itself was removed
// from the cluster. It must not be called while the informer runs.
func (i *Informer) DeleteAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, o := range sorted(i.indexer.List()) {
		i.remove(o, unseen(o))
	}
}

// LeaveAll hands on that every known object is not watched any more. It must not be called while the informer runs.
func (i *Informer) LeaveAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, o := range sorted(i.indexer.List()) {
		i.leave(o, o)
	}
}

// Objects returns all known objects, for Config.Known of a successor.
func (i *Informer) Objects() []*object.Object { return sorted(i.indexer.List()) }

func keyOf(obj any) (string, error) {
	o, ok := obj.(*object.Object)
	if !ok {
		return "", fmt.Errorf("informer holds *object.Object, not %T", obj)
	}
	return o.Key(), nil
}
