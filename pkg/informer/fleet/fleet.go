package fleet

import (
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
	"github.com/deltabridge/deltabridge/pkg/pattern"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Config configures a Fleet.
type Config struct {
	Scopes []Scope
	// Client sends requests to the API server and decodes responses with object.NegotiatedSerializer; see
	// informer.NewClient.
	Client rest.Interface
	// Connector waits for the API server while it is unavailable. It may be nil.
	Connector *informer.Connector
	// OnStart is called for each informer before it runs. The function adds the handlers.
	OnStart func(*informer.Informer)
	// State stores what a restart requires about the sources.
	State informer.State
	// Transform, if not nil, is called for each object before any other code receives the object. It may change the
	// object's Raw; see informer.ListerWatcher.
	Transform func(schema.GroupVersionResource, *object.Object)
	// ManagedFields keeps the managedFields of objects while a change is delivered. This costs a copy of the
	// managedFields.
	ManagedFields bool
	Logger        *slog.Logger // if nil, nothing is logged
}

// Fleet runs informers for all resources that its scopes match and the cluster serves.
type Fleet struct {
	config    Config
	log       *slog.Logger
	discovery *discovery.Discoverer
	starts    *rate.Limiter
	changes   chan struct{}                 // a value requests a discovery
	settled   map[string]bool               // names of the sources of the previous process that require no further work
	silent    map[schema.GroupVersion]error // discovery errors; used only by the goroutine of Run

	group     sync.WaitGroup // what runs until Run returns
	launching sync.Mutex     // held while the informers that one discovery requires are launched

	mu         sync.Mutex
	running    map[watchKey]*running
	discovered bool     // at least one discovery succeeded
	problems   []string // which selected resources cannot be watched, and why
	failure    error    // error of the last discovery; nil if it succeeded
}

type running struct {
	informer *informer.Informer
	wanted   *wanted
	cancel   context.CancelFunc
	ended    chan struct{}
	ending   bool // the objects are being reported as deleted or left; guarded by Fleet.mu
	absent   bool // no API server serves the resource; its objects may become available again; guarded by Fleet.mu
}

// startsPerSecond limits the rate at which informers start. Every start is a list, and if hundreds of lists started at
// once, API Priority and Fairness would reject some of them.
const startsPerSecond, startBurst = 100, 20

// New returns a fleet. It does nothing until Run is called.
func New(config Config) *Fleet {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Fleet{
		config: config, log: config.Logger,
		discovery: discovery.New(discovery.NewClient(config.Client), config.Client),
		starts:    rate.NewLimiter(startsPerSecond, startBurst),
		changes:   make(chan struct{}, 1),
		running:   map[watchKey]*running{}, settled: map[string]bool{},
	}
}

// Run discovers resources and watches them until ctx ends. It returns when all informers have ended. It continues to
// run while the API server is unavailable.
func (s *Fleet) Run(ctx context.Context) error {
	defer s.group.Wait()
	definitions := s.watchDefinitions()
	if definitions != nil {
		s.group.Go(func() { _ = definitions.Run(ctx) }) // returns nil when ctx ends
	}
	var pace pace
	for {
		complete := s.refresh(ctx)
		if !pace.wait(ctx, s.changes, complete, definitions != nil && definitions.HasSynced()) {
			return nil
		}
	}
}

// refresh discovers which resources the cluster serves, and starts and ends informers accordingly. It returns false if
// another discovery is required soon.
func (s *Fleet) refresh(ctx context.Context) bool {
	var found *discovery.Catalog
	err := s.config.Connector.Until(ctx, func() (err error) {
		if found, err = s.discovery.Discover(ctx); err != nil && ctx.Err() == nil {
			s.failed(err)
		}
		return err
	})
	if err != nil {
		return false // ctx has ended
	}
	p := newPlan(s.config.Scopes, found)
	s.report(p, found)
	s.launching.Lock()
	running := s.snapshot()
	for _, key := range p.order() {
		if running[key] == nil {
			s.launch(ctx, key, p, nil)
		}
	}
	s.launching.Unlock()
	s.mu.Lock()
	s.discovered = true // set only now, because otherwise the fleet would briefly be ready without its informers
	s.mu.Unlock()
	settled := s.reconcile(ctx, found, p)
	settled = s.reconcileRemembered(ctx, found, p) && settled
	return settled && len(found.Failed) == 0 && !p.open
}

func (s *Fleet) failed(err error) {
	s.mu.Lock()
	news := s.failure == nil || informer.FailureKind(s.failure) != informer.FailureKind(err)
	s.failure = err
	s.mu.Unlock()
	if news {
		s.log.Error("discovery failed, retrying", "err", err)
	}
}

// report records which parts of the scopes cannot be watched and which API groups could not be discovered. It logs each
// problem once.
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
			s.log.Warn("discovery of an API group failed, retrying; its watches continue", "group", gv.String(), "err", err)
		}
	}
	s.silent = found.Failed
}

// launch starts an informer. If the informer has a predecessor, it waits until the predecessor has ended, and continues
// with the predecessor's objects.
func (s *Fleet) launch(ctx context.Context, key watchKey, p *plan, predecessor *running) {
	w := p.informers[key]
	log := s.log.With("resource", key.String())
	if key.auxiliary {
		log = log.With("auxiliary", true)
	}
	if key.namespace != "" {
		log = log.With("namespace", key.namespace)
	}
	config := key.config(w)
	source := config.Source
	listWatch := informer.ListWatch(s.config.Client, source)
	listWatch.ManagedFields, listWatch.Transform = s.config.ManagedFields, s.config.Transform
	config.Logger, config.ListWatch, config.Connector = log, listWatch, s.config.Connector
	config.NoWatchList = w.served.Aggregated
	config.Probe = informer.NewProbe(s.config.Client, source, w.served.Namespaced)
	if predecessor == nil {
		s.takeOver(source, key, p)
		s.resume(&config)
	} else { // `watch` may have changed, and the predecessor may not have delivered the list that shows the differences
		config.Relist = predecessor.informer.Relists() && !predecessor.informer.HasSynced()
	}
	config.Record = s.config.State.Record(source)
	i := informer.New(config)
	ctx, cancel := context.WithCancel(ctx)
	r := &running{informer: i, wanted: w, cancel: cancel, ended: make(chan struct{})}
	s.config.OnStart(i)
	s.mu.Lock()
	s.running[key] = r
	s.mu.Unlock()
	s.group.Go(func() {
		defer close(r.ended)
		if predecessor != nil {
			<-predecessor.ended
			i.Succeed(predecessor.informer)
		}
		if s.starts.Wait(ctx) == nil { // otherwise ctx ended before the informer started
			_ = i.Run(ctx) // returns nil when ctx ends
		}
	})
}

// config returns the part of an informer's configuration that the plan decides.
func (k watchKey) config(w *wanted) informer.Config {
	return informer.Config{
		Source: k.source(w), Auxiliary: k.auxiliary,
		Select: w.selection.inNamespace(), Within: w.selection.within(),
		Selector: strings.Trim(w.selection.labels+";"+w.selection.fields, ";"),
	}
}

// reconcile ends or replaces the running informers whose resource or version is not in the plan. It returns false if it
// is not certain whether a resource was removed. It does not wait for informers to end, because a handler may block
// them.
func (s *Fleet) reconcile(ctx context.Context, found *discovery.Catalog, p *plan) bool {
	settled := true
	for key, r := range s.snapshot() {
		w := p.informers[key]
		gvr := r.informer.Resource()
		switch {
		case r.ending, r.absent && w == nil:
			// If the informer is ending, another discovery follows.
		case r.absent:
			s.launch(ctx, key, p, r)
		case w != nil && slices.Contains(w.served.Versions, gvr.Version):
			// The version is still served. If the cluster now prefers another version, that is not a reason to restart the
			// informer.
		case w != nil && found.Failed[gvr.GroupVersion()] != nil:
			// It is unknown whether the version is still served.
			settled = false
		case w != nil:
			s.log.Info("version is no longer served, watching another one",
				"resource", key.String(), "from", gvr.Version, "to", w.version)
			r.cancel()
			s.launch(ctx, key, p, r)
		case found.FailedGroup(gvr.Group) || !s.discovery.Gone(ctx, gvr, key.namespace, r.wanted.served.Aggregated):
			settled = false
		default:
			s.log.Info("resource is no longer served by the cluster, stopping its informer", "resource", key.String())
			r.cancel()
			s.mu.Lock()
			r.ending, r.absent = r.wanted.served.Defined, !r.wanted.served.Defined
			s.mu.Unlock()
			if r.ending {
				s.end(key, r, (*informer.Informer).DeleteAll)
			}
		}
	}
	return settled
}

// end reports all objects of an informer as deleted or left, depending on handOn, when the informer has ended. The
// source is then forgotten.
func (s *Fleet) end(key watchKey, r *running, handOn func(*informer.Informer)) {
	s.group.Go(func() { // in the background, because a handler may block
		<-r.ended
		handOn(r.informer)
		s.config.State.Forget(r.informer.Source().Name)
		s.mu.Lock()
		if s.running[key] == r {
			delete(s.running, key)
		}
		s.mu.Unlock()
		s.lookAgain() // the resource may exist again
	})
}

func (s *Fleet) snapshot() map[watchKey]*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.running)
}

// Informers returns all informers, sorted by source name. It waits while informers are being launched, so it returns
// all informers of a resource or none. OnStart must not call it. Informers whose resource is not served have ended, and
// cannot be restated.
func (s *Fleet) Informers() []*informer.Informer {
	s.launching.Lock()
	running := s.snapshot()
	s.launching.Unlock()
	var informers []*informer.Informer
	for _, r := range running {
		informers = append(informers, r.informer)
	}
	slices.SortFunc(informers, func(a, b *informer.Informer) int {
		return strings.Compare(a.Source().Name, b.Source().Name)
	})
	return informers
}

// Sources returns the names of the sources that are watched and served. Unlike Informers, it never waits: it returns
// false if it does not know all of them, because informers are being launched or no discovery has succeeded yet.
func (s *Fleet) Sources() (names map[string]bool, ok bool) {
	if !s.launching.TryLock() {
		return nil, false
	}
	defer s.launching.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	names = map[string]bool{}
	for _, r := range s.running {
		if !r.absent && !r.ending {
			names[r.informer.Source().Name] = true
		}
	}
	return names, s.discovered
}

// Statuses returns the statuses of the running informers, in any order.
func (s *Fleet) Statuses() []informer.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var statuses []informer.Status
	for _, r := range s.running {
		if !r.absent {
			status := r.informer.Status()
			status.Excused = r.excused(&status)
			statuses = append(statuses, status)
		}
	}
	return statuses
}

// NotReady returns the reasons why the fleet is not ready, or none if it is ready. The fleet is not ready if no
// discovery has succeeded yet, if a resource that a scope names is not served or is forbidden, if an initial list
// has not been delivered yet, or if a watch is stale. Forbidden resources that only a wildcard matches do not count,
// but Statuses includes them.
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

// excused reports whether the fleet is ready even if the informer is not.
func (r *running) excused(status *informer.Status) bool {
	return r.ending || r.absent || status.Forbidden && !r.wanted.named
}

func (r *running) notReady(name string) string {
	status := r.informer.Status()
	switch {
	case r.excused(&status):
		return ""
	case status.Forbidden:
		return fmt.Sprintf("%s is forbidden: %s", name, status.LastError)
	case !status.Synced && status.LastError != "":
		return fmt.Sprintf("%s has no initial list: %s", name, status.LastError)
	case !status.Synced:
		return name + ": initial list has not been delivered yet"
	case status.Stale:
		return fmt.Sprintf("%s: nothing received on its watch since %s", name, status.LastContact.UTC().Format(time.RFC3339))
	}
	return ""
}

// matchesDefinitions reports whether a pattern of a scope that is not auxiliary can match a resource that a
// CustomResourceDefinition defines.
func (s *Fleet) matchesDefinitions() bool {
	return slices.ContainsFunc(s.config.Scopes, func(scope Scope) bool {
		return !scope.Auxiliary && slices.ContainsFunc(scope.Resources, func(p pattern.Resource) bool {
			return p.Wildcard() || p.Group != ""
		})
	})
}

//nolint:gochecknoglobals // constant in all but name
var crdResource = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}
