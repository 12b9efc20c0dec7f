package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/object"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Config says what a Fleet runs.
type Config struct {
	Scopes []Scope
	// Client reaches the API server with object.NegotiatedSerializer; see informer.NewClient.
	Client rest.Interface
	// Connector waits for the API server while it can't be reached; nil is allowed.
	Connector *informer.Connector
	// Discovery lists what the API server serves.
	Discovery kubediscovery.DiscoveryInterfaceWithContext
	// OnStart is called for each informer before it runs, to add handlers.
	OnStart func(*informer.Informer)
	// State stores what is known of sources for a restart.
	State informer.State
	// Transform, if not nil, is called first for each object, and may change its Raw; see informer.ListerWatcher.
	Transform func(schema.GroupVersionResource, *object.Object)
	// ManagedFields keeps the managedFields of objects while a change is handed over, at the cost of a copy of them.
	ManagedFields bool
	Logger        *slog.Logger // nil is silent
}

// Fleet runs one informer for each resource that its scopes match and the cluster serves.
type Fleet struct {
	config    Config
	log       *slog.Logger
	discovery *discovery.Discoverer
	starts    *rate.Limiter
	changes   chan struct{}                 // requests a discovery
	settled   map[string]bool               // by name: sources of the previous process that need nothing more
	silent    map[schema.GroupVersion]error // for which discovery failed; only Run's goroutine uses it

	launching sync.Mutex // held while the informers of one discovery are launched

	mu         sync.Mutex
	running    map[watchKey]*running
	left       map[watchKey]*running // ended, and their objects may be back
	discovered bool                  // one discovery succeeded
	problems   []string              // what the scopes select and cannot be watched
	failure    error                 // of the last discovery; nil if it succeeded
}

type running struct {
	informer *informer.Informer
	wanted   *wanted
	cancel   context.CancelFunc
	ended    chan struct{}
	removed  bool // the resource is gone; guarded by Fleet.mu
}

// startsPerSecond limits how fast informers start: each start is a list, and the API server's priority and fairness
// would reject some of hundreds at once.
const startsPerSecond, startBurst = 100, 20

// New returns a fleet that does nothing until Run.
func New(config Config) *Fleet {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Fleet{
		config: config, log: config.Logger,
		discovery: discovery.New(config.Discovery, config.Client),
		starts:    rate.NewLimiter(startsPerSecond, startBurst),
		changes:   make(chan struct{}, 1),
		running:   map[watchKey]*running{}, left: map[watchKey]*running{}, settled: map[string]bool{},
	}
}

// Run discovers and watches until ctx ends, and returns when all informers have ended. It continues while the API
// server is unavailable.
func (s *Fleet) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	definitions := s.watchDefinitions()
	if definitions != nil {
		group.Go(func() { _ = definitions.Run(ctx) }) // ends with ctx, without an error
	}
	var pace pace
	for {
		complete := s.refresh(ctx, &group)
		if !pace.wait(ctx, s.changes, complete, definitions != nil && definitions.HasSynced()) {
			return nil
		}
	}
}

// refresh discovers what the cluster serves, and starts and ends informers accordingly. It returns false if another
// discovery is required soon.
func (s *Fleet) refresh(ctx context.Context, group *sync.WaitGroup) bool {
	var found *discovery.Catalog
	err := s.config.Connector.Until(ctx, func() (err error) {
		if found, err = s.discovery.Discover(ctx); err != nil && ctx.Err() == nil {
			s.failed(err)
		}
		return err
	})
	if err != nil {
		return false // ctx ended
	}
	p := newPlan(s.config.Scopes, found)
	s.report(p, found)
	s.launching.Lock()
	for _, key := range p.order() {
		s.mu.Lock()
		isRunning, before := s.running[key] != nil, s.left[key]
		s.mu.Unlock()
		if !isRunning {
			s.launch(ctx, group, key, p, before)
		}
	}
	s.launching.Unlock()
	s.mu.Lock()
	s.discovered = true // not before the informers run: the fleet would be ready for a moment
	s.mu.Unlock()
	settled := s.reconcile(ctx, group, found, p)
	settled = s.reconcileRemembered(ctx, group, found, p) && settled
	return settled && len(found.Failed) == 0 && !p.open
}

func (s *Fleet) failed(err error) {
	s.mu.Lock()
	news := s.failure == nil || informer.FailureKind(s.failure) != informer.FailureKind(err)
	s.failure = err
	s.mu.Unlock()
	if news {
		s.log.Error("discovery failed, trying again", "err", err)
	}
}

// report records which parts of the scopes cannot be watched and which groups did not answer, and logs each once.
func (s *Fleet) report(p *plan, found *discovery.Catalog) {
	s.mu.Lock()
	known := s.problems
	s.problems, s.failure = p.problems, nil
	s.mu.Unlock()
	for _, problem := range p.problems {
		if !slices.Contains(known, problem) {
			s.log.Warn("cannot watch", "problem", problem)
		}
	}
	for gv, err := range found.Failed {
		if s.silent[gv] == nil {
			s.log.Warn(
				"discovery of a group failed, trying again; what is watched of it stays watched",
				"group",
				gv.String(),
				"err",
				err,
			)
		}
	}
	s.silent = found.Failed
}

// launch starts an informer. If it has a predecessor, it waits until that has ended, and continues with its objects.
func (s *Fleet) launch(ctx context.Context, group *sync.WaitGroup, key watchKey, p *plan, predecessor *running) {
	w := p.informers[key]
	gvr := w.served.WithVersion(w.version)
	log := s.log.With("resource", gvr.GroupResource().String())
	if key.auxiliary {
		log = log.With("auxiliary", true)
	}
	if key.namespace != "" {
		log = log.With("namespace", key.namespace)
	}
	source := key.source(w)
	listWatch := informer.ListWatch(s.config.Client, gvr, key.namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = source.LabelSelector, source.FieldSelector
	})
	listWatch.ManagedFields = s.config.ManagedFields
	if s.config.Transform != nil {
		listWatch.Transform = func(o *object.Object) { s.config.Transform(gvr, o) }
	}
	config := informer.Config{
		Resource: gvr, Namespace: key.namespace, NoWatchList: w.served.Aggregated, Logger: log,
		Select: w.selection.matcher(false), Within: w.selection.matcher(true), Selector: w.selection.selectors(),
		ListWatch: listWatch, Connector: s.config.Connector, Source: source, Auxiliary: key.auxiliary,
		Probe: informer.NewProbe(s.config.Client, gvr, key.namespace, w.served.Namespaced),
	}
	if predecessor == nil {
		s.takeOver(source, key, p)
	}
	goesOn := s.resume(&config)
	i := informer.New(config)
	ctx, cancel := context.WithCancel(ctx)
	r := &running{informer: i, wanted: w, cancel: cancel, ended: make(chan struct{})}
	s.config.OnStart(i)
	s.mu.Lock()
	s.running[key] = r
	delete(s.left, key)
	s.mu.Unlock()
	group.Go(func() {
		defer close(r.ended)
		if predecessor != nil {
			<-predecessor.ended
			if goesOn {
				i.Succeed(predecessor.informer)
			}
		}
		if s.starts.Wait(ctx) != nil {
			return // ended before it began
		}
		if err := i.Run(ctx); err != nil {
			log.Error("informer ended", "err", err)
		}
	})
}

// reconcile ends or replaces the running informers whose resource or version is not in the plan. It returns false if it
// is not certain that a resource is gone. It does not wait for informers to end, because a handler may block them.
func (s *Fleet) reconcile(ctx context.Context, group *sync.WaitGroup, found *discovery.Catalog, p *plan) bool {
	settled := true
	for key, r := range s.snapshot() {
		w := p.informers[key]
		gvr := r.informer.Resource()
		switch {
		case r.removed:
			// There is another discovery when it has ended.
		case w != nil && slices.Contains(w.served.Versions, gvr.Version):
			// The version is still served. That the cluster prefers another one now is no reason to start again.
		case w != nil:
			s.log.Info(
				"version is no longer served, watching another one",
				"resource",
				key.String(),
				"from",
				gvr.Version,
				"to",
				w.version,
			)
			r.cancel()
			s.launch(ctx, group, key, p, r)
		case found.FailedGroup(gvr.Group) || !s.discovery.Gone(ctx, gvr, r.wanted.served.Aggregated):
			settled = false
		default:
			s.remove(group, key, r)
		}
	}
	return settled
}

// remove ends the informer of a resource that is gone. If the resource had a CustomResourceDefinition, its objects are
// deleted. The objects of any other resource may come back with its API server.
func (s *Fleet) remove(group *sync.WaitGroup, key watchKey, r *running) {
	s.mu.Lock()
	r.removed = true
	s.mu.Unlock()
	r.cancel()
	group.Go(func() {
		<-r.ended
		s.log.Info("resource is gone from the cluster, informer ended", "resource", key.String())
		defined := r.wanted.served.Defined
		if defined {
			r.informer.DeleteAll()
		}
		s.config.State.Removed(r.informer)
		s.mu.Lock()
		delete(s.running, key)
		if !defined {
			s.left[key] = r
		}
		s.mu.Unlock()
		s.lookAgain() // it may be back
	})
}

func (s *Fleet) snapshot() map[watchKey]*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.running)
}

// Informers returns all informers, sorted by the names of their sources. It waits while informers are being launched,
// so that it returns all informers of a resource or none; it must not be called by OnStart. Informers whose resource is
// not served have ended, and cannot be restated.
func (s *Fleet) Informers() []*informer.Informer {
	var informers []*informer.Informer
	s.launching.Lock()
	s.mu.Lock()
	for _, of := range []map[watchKey]*running{s.running, s.left} {
		for _, r := range of {
			informers = append(informers, r.informer)
		}
	}
	s.mu.Unlock()
	s.launching.Unlock()
	slices.SortFunc(
		informers,
		func(a, b *informer.Informer) int { return strings.Compare(a.Source().Name, b.Source().Name) },
	)
	return informers
}

// Statuses returns the statuses of the running informers, sorted by resource and namespace.
func (s *Fleet) Statuses() []informer.Status {
	var statuses []informer.Status
	for _, r := range s.snapshot() {
		statuses = append(statuses, r.informer.Status())
	}
	slices.SortFunc(statuses, func(a, b informer.Status) int {
		return cmp.Or(
			strings.Compare(a.Resource.GroupResource().String(), b.Resource.GroupResource().String()),
			strings.Compare(a.Namespace, b.Namespace))
	})
	return statuses
}

// NotReady returns the reasons why the fleet is not ready: nothing is discovered yet, a resource that a scope names is
// not served or forbidden, an initial list is not handed over, or a watch is silent. The fleet is ready if there are
// none. Forbidden resources that only a wildcard matches do not count; Statuses has them.
func (s *Fleet) NotReady() []string {
	s.mu.Lock()
	reasons := slices.Clone(s.problems)
	if !s.discovered {
		reason := "discovery has not succeeded yet"
		if s.failure != nil {
			reason = s.failure.Error()
		}
		reasons = append(reasons, reason)
	}
	for key, r := range s.running {
		if reason := r.notReady(key.name()); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	s.mu.Unlock()
	slices.Sort(reasons)
	return reasons
}

func (r *running) notReady(name string) string {
	status := r.informer.Status()
	switch {
	case r.removed, status.Forbidden && !r.wanted.named:
		return ""
	case status.Forbidden:
		return fmt.Sprintf("%s is forbidden: %s", name, status.LastError)
	case !status.Synced && status.LastError != "":
		return fmt.Sprintf("%s has no initial list: %s", name, status.LastError)
	case !status.Synced:
		return name + ": initial list is not handed over yet"
	case status.Stale:
		return fmt.Sprintf("%s: nothing was heard of its watch since %s", name, status.LastContact.UTC().Format(time.RFC3339))
	}
	return ""
}

// matchesDefinitions reports whether a pattern can match a resource that a CustomResourceDefinition defines.
func (s *Fleet) matchesDefinitions() bool {
	return slices.ContainsFunc(s.config.Scopes, func(scope Scope) bool {
		return !scope.Auxiliary && slices.ContainsFunc(scope.Patterns, func(p Pattern) bool {
			return p.Wildcard || strings.Contains(p.Text, ".")
		})
	})
}

//nolint:gochecknoglobals // constant in all but name
var crdResource = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}
