package tracker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Options configures a Tracker.
type Options struct {
	Store  Store
	Watch  string // the watch configuration, as a string
	Sinks  []Sink
	Queues Queues
	// Reading ends when no more changes are read. After that, no call waits for the disk or for sinks.
	Reading context.Context //nolint:containedctx // informers call the tracker without a context
	// EachSecond is called by Run about once a second, so that the process needs no other timer. It may be nil.
	EachSecond func()
	Logger     *slog.Logger
}

// ErrNoAPIServer is wrapped by the error of NotReady if the API server has not returned the cluster's uid yet.
var ErrNoAPIServer = errors.New("the API server does not respond")

// Queues represents the queues of all sinks.
type Queues interface {
	// Persist asks the queues to write all waiting events to disk soon.
	Persist()
	// Spilled returns, by sink, the positions of a source in the spills that existed when the process started, as far as
	// they belong to the given history (ledger.State.History).
	Spilled(source, history string) map[string]string
}

// Sink describes a sink for the tracker.
type Sink struct {
	Name string
	// Filter is the sink's filter as a string. If it has changed, the sink must be sent the difference: see Known.
	Filter string
	// Lossy reports whether the sink's queue drops or merges events when it is full.
	Lossy bool
}

// Tracker commits the progress of the ledgers to the store. It is safe for concurrent use.
type Tracker struct {
	store   Store
	log     *slog.Logger
	sinks   []string
	lossy   map[string]bool // by sink
	queues  Queues
	reading context.Context //nolint:containedctx // Options.Reading
	// crowded receives a value when the ledgers must be relieved.
	crowded chan struct{}
	second  func()       // Options.EachSecond; not nil
	left    atomic.Int64 // bytes that all ledgers held after the last commit
	held    atomic.Int64 // bytes that all ledgers hold, see Ledger.Held
	staging sync.Mutex   // held while a stage is begun or writes
	watch   string       // Options.Watch

	caughtUp atomic.Bool // see CaughtUp

	committing sync.Mutex // held by Commit, because the ledgers permit only one commit at a time
	resuming   sync.Mutex // held while the state of a source is read, until its ledger exists, and in filters.go
	forgetting sync.Mutex // held while the store removes sources, so none of them can be resumed during the removal

	mu      sync.Mutex
	filters map[string]string // by sink; the map is replaced when a filter changes
	// change is the name of the last change to the watch configuration, or empty if it never changed. Identify sets both.
	change, epoch string
	sources       map[string]*source   // by name: the sources in the store, and the sources that were resumed
	opened        uint64               // number of ledgers that were opened; gives every ledger its own sequence numbers
	bookmarks     map[string]*bookmark // by sink: positions that are not stored yet
	failure       error                // why the checkpoint prevents readiness; nil if it does not
	successor     string               // uid of the cluster for which Finish empties the store; usually empty
}

// New returns a Tracker that uses the given store. The content of the store is not used before Identify.
func New(o Options) *Tracker {
	t := &Tracker{
		store:   o.Store,
		log:     o.Logger,
		watch:   o.Watch,
		lossy:   map[string]bool{},
		queues:  o.Queues,
		reading: o.Reading,
		crowded: make(chan struct{}, 1),
		second:  o.EachSecond,
		filters: map[string]string{},
		sources: map[string]*source{},

		bookmarks: map[string]*bookmark{},
	}
	if t.second == nil {
		t.second = func() {}
	}
	for _, s := range o.Sinks {
		t.sinks = append(t.sinks, s.Name)
		t.lossy[s.Name] = s.Lossy
		t.filters[s.Name] = s.Filter
	}
	return t
}

// ErrOtherCluster is the error of Identify if the checkpoint belongs to another cluster. Finish then replaces the
// checkpoint with an empty one. Until Finish is called, the sinks use the identity in the checkpoint, with which they
// can deliver the events of the other cluster that they still hold.
var ErrOtherCluster = errors.New("the checkpoint belongs to another cluster")

// Finish empties the store if Identify has returned ErrOtherCluster. Call it after Run has returned.
func (t *Tracker) Finish() error {
	t.mu.Lock()
	successor := t.successor
	t.mu.Unlock()
	if successor == "" {
		return nil
	}
	return t.store.BeginCluster(successor)
}

// ClusterUID returns the cluster uid in the checkpoint. It is empty if the checkpoint is new and Identify has not
// returned yet.
func (t *Tracker) ClusterUID() string { return t.store.ClusterUID() }

// KnownUID returns ClusterUID, or an empty string if the uid could never be read. It does not block.
func (t *Tracker) KnownUID() string {
	if uid := t.ClusterUID(); uid != checkpoint.UnknownCluster {
		return uid
	}
	return ""
}

// Epoch returns the epoch of new events; see event.Message. It is known when Identify has returned.
func (t *Tracker) Epoch() string { return t.epoch }

// Destination returns the name of the destination that received the settled events of a sink; empty if it is not known.
func (t *Tracker) Destination(sink string) string { return t.store.Destination(sink) }

// SetDestination records the name of the destination that received the settled events of a sink.
func (t *Tracker) SetDestination(sink, name string) error { return t.store.SetDestination(sink, name) }

// Stats returns the statistics of the store.
func (t *Tracker) Stats() checkpoint.Stats { return t.store.Stats() }

// States returns the sources that are currently in the checkpoint.
func (t *Tracker) States() []ledger.State {
	states, err := t.store.States()
	if err != nil {
		t.log.Error("cannot read the sources in the checkpoint", "err", err)
	}
	return states
}

// Identify waits until the API server returns the cluster's uid, and loads what the store contains about this cluster.
// It returns ctx's error if ctx ends first. If the error is ErrOtherCluster, call Finish and create another tracker:
// the sinks must write with another identity from now on.
func (t *Tracker) Identify(ctx context.Context, connector *informer.Connector, client rest.Interface) error {
	var uid string
	err := connector.Until(ctx, func() (err error) {
		uid, err = ReadClusterUID(ctx, client)
		if err != nil && ctx.Err() == nil && t.fail(fmt.Errorf("%w: %w", ErrNoAPIServer, err)) == nil {
			t.log.Warn("API server does not respond, retrying", "err", err)
		}
		return err
	})
	_ = t.fail(nil) // the reason is no longer current
	if err != nil {
		return ctx.Err()
	}
	if err := t.load(uid); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// ReadClusterUID returns the uid of the namespace kube-system, which exists as long as the cluster. It returns an empty
// string if RBAC forbids reading the namespace.
func ReadClusterUID(ctx context.Context, client rest.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, err := client.Get().AbsPath("/api/v1/namespaces/kube-system").MaxRetries(0).DoRaw(ctx)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	}
	o, err := object.New(data)
	if err != nil {
		return "", err
	}
	return string(o.UID), nil
}

func (t *Tracker) load(uid string) error {
	if uid == "" {
		t.log.Warn(
			"cannot read the namespace kube-system: the bridge cannot check whether the checkpoint belongs to this cluster and whether another cluster has the same name",
		)
		if uid = t.store.ClusterUID(); uid == "" {
			uid = checkpoint.UnknownCluster
		}
	}
	if known := t.KnownUID(); known != "" && known != uid {
		t.mu.Lock()
		t.successor = uid
		t.mu.Unlock()
		return ErrOtherCluster
	}
	if err := t.store.BeginCluster(uid); err != nil {
		return err
	}
	// Commit the new filters before any event passes them. Even if the filter of a sink is changed again later, the
	// checkpoint then shows that the sink may know objects that this filter passes.
	if err := t.store.Commit(nil, t.currentFilters(), nil); err != nil {
		return err
	}
	change, epoch, err := t.store.SetWatch(t.watch)
	if err != nil {
		return err
	}
	states, err := t.store.States()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change, t.epoch = change, epoch
	changed := map[string]bool{}
	for _, s := range states {
		t.sources[s.Source.Name] = &source{state: s}
		for sink, r := range s.Refilters {
			if !r.Settled {
				changed[sink] = true
			}
		}
	}
	for _, sink := range slices.Sorted(maps.Keys(changed)) {
		t.log.Info("filter has changed, sending added and leave events for objects that pass it now or no longer pass it",
			"sink", sink)
	}
	return nil
}

// NotReady returns why the checkpoint prevents readiness, or nil if it does not.
func (t *Tracker) NotReady() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}

// fail records why the checkpoint prevents readiness, and returns the previous reason.
func (t *Tracker) fail(why error) (before error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, t.failure = t.failure, why
	return before
}
