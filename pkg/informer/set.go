package informer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// SetConfig says what a Set runs.
type SetConfig struct {
	Scopes []Scope
	// Client reaches the API server with object.NegotiatedSerializer; see NewClient.
	Client rest.Interface
	// Discovery lists what the API server serves.
	Discovery discovery.DiscoveryInterfaceWithContext
	// OnStart is called for each informer before it runs, to add handlers.
	OnStart func(*Informer)
	// OnRemoved is called when a resource is gone from the cluster, after its informer has ended; nil is allowed.
	OnRemoved func(*Informer)
	Logger    *slog.Logger // nil is silent
}

// Set runs one informer for each resource that its scopes match and the cluster serves.
type Set struct {
	config    SetConfig
	log       *slog.Logger
	discovery *discoverer
	starts    *rate.Limiter

	mu         sync.Mutex
	running    map[watchKey]*running
	discovered bool     // one discovery succeeded
	problems   []string // what of the scopes can't be watched, in words
	lastError  string   // of the last discovery
}

type running struct {
	informer *Informer
	wanted   *wanted
	cancel   context.CancelFunc
	ended    chan struct{}
}

// startsPerSecond bounds how fast informers start: each start is a list, and the API server's priority and fairness
// would refuse some of hundreds at once.
const startsPerSecond, startBurst = 100, 20

// NewSet makes a set that does nothing until Run.
func NewSet(config SetConfig) *Set {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Set{
		config: config, log: config.Logger,
		discovery: &discoverer{client: config.Discovery, raw: config.Client},
		starts:    rate.NewLimiter(startsPerSecond, startBurst),
		running:   map[watchKey]*running{},
	}
}

// Run discovers and watches until ctx ends, and returns when all informers have ended. An API server that can't be
// reached, at the start or later, ends nothing.
func (s *Set) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	changes := make(chan struct{}, 1)
	definitions := s.watchDefinitions(changes)
	if definitions != nil {
		group.Go(func() { _ = definitions.Run(ctx) }) // ends with ctx, without an error
	}
	var pace pace
	for {
		complete := s.refresh(ctx, &group)
		if !pace.wait(ctx, changes, complete, definitions != nil && definitions.HasSynced()) {
			return nil
		}
	}
}

// refresh brings the running informers in step with what the cluster serves. It reports whether all is known that
// there is to know; false asks to look again soon.
func (s *Set) refresh(ctx context.Context, group *sync.WaitGroup) bool {
	found, err := s.discovery.discover(ctx)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		s.failed(err)
		return false
	}
	p := s.plan(ctx, found)
	s.report(p)
	for key, w := range p.informers {
		if !s.isRunning(key) {
			s.launch(ctx, group, key, w, nil)
		}
	}
	settled := s.reconcile(ctx, group, found, p)
	return settled && len(found.failed) == 0 && len(p.unserved) == 0
}

func (s *Set) failed(err error) {
	s.mu.Lock()
	repeated := s.lastError == err.Error()
	s.lastError = err.Error()
	s.mu.Unlock()
	if !repeated {
		s.log.Error("discovery failed, trying again", "err", err)
	}
}

// report notes and logs, once, which parts of the scopes can't be watched.
func (s *Set) report(p *plan) {
	var problems []string
	for _, name := range p.unserved {
		problems = append(problems, "the cluster does not serve "+name)
	}
	for _, name := range p.unusable {
		problems = append(problems, name+" is cluster-scoped and lies in none of the namespaces; add \"\" to them to watch it")
	}
	slices.Sort(problems)
	s.mu.Lock()
	known := s.problems
	s.problems, s.discovered, s.lastError = problems, true, ""
	s.mu.Unlock()
	for _, problem := range problems {
		if !slices.Contains(known, problem) {
			s.log.Warn("can't watch", "problem", problem)
		}
	}
}

func (s *Set) isRunning(key watchKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[key] != nil
}

// launch starts an informer. known are objects that the handlers know from its predecessor.
func (s *Set) launch(ctx context.Context, group *sync.WaitGroup, key watchKey, w *wanted, predecessor *Informer) {
	gvr := w.served.WithVersion(w.version)
	log := s.log.With("resource", gvr.GroupResource().String())
	if key.namespace != "" {
		log = log.With("namespace", key.namespace)
	}
	config := Config{
		Resource: gvr, Namespace: key.namespace, Accept: w.accept(), NoWatchList: w.served.Aggregated, Logger: log,
		ListWatch: ListWatch(s.config.Client, gvr, key.namespace, func(o *metav1.ListOptions) {
			o.LabelSelector, o.FieldSelector = key.labels, key.fields
		}),
	}
	if predecessor != nil {
		config.Known = predecessor.Objects()
	}
	informer := New(config)
	ctx, cancel := context.WithCancel(ctx)
	r := &running{informer: informer, wanted: w, cancel: cancel, ended: make(chan struct{})}
	if s.config.OnStart != nil {
		s.config.OnStart(informer)
	}
	s.mu.Lock()
	s.running[key] = r
	s.mu.Unlock()
	group.Go(func() {
		defer close(r.ended)
		if s.starts.Wait(ctx) != nil {
			return // ended before it began
		}
		if err := informer.Run(ctx); err != nil {
			log.Error("informer ended", "err", err)
		}
	})
}

// reconcile looks at the running informers that the plan does not hold as they are: their resource is gone, or its
// version is. It reports whether nothing is left in doubt.
func (s *Set) reconcile(ctx context.Context, group *sync.WaitGroup, found *catalog, p *plan) bool {
	settled := true
	for key, r := range s.snapshot() {
		w := p.informers[key]
		gvr := r.informer.Resource()
		switch {
		case w != nil && slices.Contains(w.served.Versions, gvr.Version):
			// Served as it is watched. A cluster that prefers another version now is no reason to start again.
		case w != nil:
			r.stop()
			s.log.Info("version is no longer served, watching another one", "resource", key.String(), "from", gvr.Version, "to", w.version)
			s.launch(ctx, group, key, w, r.informer)
		case found.failedGroup(gvr.Group) || !s.discovery.gone(ctx, gvr, r.wanted.served.Aggregated):
			settled = false
		default:
			s.remove(key, r)
		}
	}
	return settled
}

// remove ends the informer of a resource that is gone. With a CustomResourceDefinition its objects are deleted;
// behind an aggregated API server they may live on, unseen.
func (s *Set) remove(key watchKey, r *running) {
	r.stop()
	s.mu.Lock()
	delete(s.running, key)
	s.mu.Unlock()
	s.log.Info("resource is gone from the cluster, informer ended", "resource", key.String())
	if !r.wanted.served.Aggregated {
		r.informer.DeleteAll()
	}
	if s.config.OnRemoved != nil {
		s.config.OnRemoved(r.informer)
	}
}

// stop ends the informer and waits for it.
func (r *running) stop() {
	r.cancel()
	<-r.ended
}

func (s *Set) snapshot() map[watchKey]*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.running)
}

// Statuses describes the running informers, by resource and namespace.
func (s *Set) Statuses() []Status {
	var statuses []Status
	for _, r := range s.snapshot() {
		statuses = append(statuses, r.informer.Status())
	}
	slices.SortFunc(statuses, func(a, b Status) int {
		if c := strings.Compare(a.Resource.GroupResource().String(), b.Resource.GroupResource().String()); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace, b.Namespace)
	})
	return statuses
}

// NotReady says in words what keeps the set from being ready: nothing is discovered yet, a resource that a scope
// names is not served or forbidden, an initial list is not handed over, a watch is silent. Empty: ready. Resources
// that only a wildcard matches and RBAC forbids do not count; Statuses has them.
func (s *Set) NotReady() []string {
	s.mu.Lock()
	reasons := slices.Clone(s.problems)
	if !s.discovered {
		reason := "discovery has not succeeded yet"
		if s.lastError != "" {
			reason = s.lastError
		}
		reasons = append(reasons, reason)
	}
	s.mu.Unlock()
	for _, r := range s.snapshot() {
		if reason := r.notReady(); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	slices.Sort(reasons)
	return reasons
}

func (r *running) notReady() string {
	status := r.informer.Status()
	name := r.informer.status.name()
	switch {
	case status.Forbidden && !r.wanted.named:
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

func (s *Set) wildcards() bool {
	for _, scope := range s.config.Scopes {
		for _, pattern := range scope.Patterns {
			if pattern.Wildcard || strings.Contains(pattern.Text, ".") {
				return true
			}
		}
	}
	return false
}

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"} //nolint:gochecknoglobals // constant in all but name
