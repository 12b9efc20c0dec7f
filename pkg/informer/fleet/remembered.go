package fleet

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// source names an informer for a checkpoint. What is selected of the resource is not part of the name, nor is its version: objects
// are the same in all of them.
func (k watchKey) source(w *wanted) informer.Source {
	labels, fields := w.selection.server()
	return informer.Source{
		Name: k.name(), Resource: w.served.WithVersion(w.version), Namespace: k.namespace,
		LabelSelector: labels, FieldSelector: fields, Scope: w.selection.String(), Defined: w.served.Defined,
	}
}

func (k watchKey) name() string {
	name := k.GroupResource.String()
	if k.auxiliary {
		name = auxiliaryPrefix + name
	}
	if k.namespace != "" {
		name += " in " + k.namespace
	}
	return name
}

// keyOfSource is the key whose informer has the source.
func keyOfSource(source informer.Source) watchKey {
	return watchKey{source.Resource.GroupResource(), source.Namespace, strings.HasPrefix(source.Name, auxiliaryPrefix)}
}

// auxiliaryPrefix begins the names of auxiliary sources. The name of a resource has no space.
const auxiliaryPrefix = "auxiliary "

// resume makes an informer begin with what is known of its source. Where that was another scope it compares that with a list. It reports
// whether the informer goes on from what a predecessor in this process has handed on.
func (s *Fleet) resume(config *informer.Config) (goesOn bool) {
	source := config.Source
	memory := s.config.State.Resume(source)
	config.Record = s.config.State.Record(source)
	config.Known, config.ResumeAt = memory.Known, memory.At
	config.Relist = memory.At != "" && memory.Scope != source.Scope
	if config.Relist {
		s.log.Info("what is watched of a resource has changed, listing", "source", source.Name, "was", memory.Scope, "is", source.Scope)
	}
	return memory.GoesOn
}

const (
	// mixed is the scope of a source that took over objects of others, until it was listed. No selection has this text.
	mixed = "(several)"
	// none is the scope of a source that is watched no more, until that was handed on.
	none = "(none)"
)

// takeOver makes objects of remembered sources those of a source that watches them from now on.
func (s *Fleet) takeOver(source informer.Source, key watchKey, p *plan) {
	var shares []informer.Share
	source.Scope = mixed
	known := false
	for _, other := range s.config.State.Remembered() {
		of := keyOfSource(other)
		if of.GroupResource != key.GroupResource || of.auxiliary != key.auxiliary {
			continue
		}
		if other.Name == source.Name {
			known = true
			continue
		}
		if owner, _ := p.owner(key.GroupResource, key.auxiliary, of.namespace); of.namespace != "" && owner != key {
			continue
		}
		if of.namespace == "" && other.Scope == "" && other.LabelSelector == "" && other.FieldSelector == "" && key.namespace != "" {
			source.Scope = "" // all objects of the namespace
		}
		shares = append(shares, informer.Share{Source: other.Name, In: func(namespace string) bool {
			owner, found := p.owner(key.GroupResource, key.auxiliary, namespace)
			return found && owner == key
		}})
	}
	if known || len(shares) > 1 {
		source.Scope = mixed
	}
	if len(shares) > 0 {
		s.config.State.TakeOver(source, shares)
	}
}

// reconcileRemembered deals, once, with each source that an earlier process watched and that this one does not: its
// resource is gone, and its objects' deletions are still to be handed on; or no scope asks any more for what others did not take
// over of it, which has left. It reports whether nothing is left in doubt.
func (s *Fleet) reconcileRemembered(ctx context.Context, group *sync.WaitGroup, found *discovery.Catalog, p *plan) bool {
	settled := true
	for _, source := range s.config.State.Remembered() {
		key := keyOfSource(source)
		if s.settled[source.Name] || s.runs(key, source.Name) {
			continue
		}
		served := slices.ContainsFunc(found.Served, func(served discovery.Served) bool { return served.GroupResource == key.GroupResource })
		switch {
		case served && (p.open || len(found.Failed) > 0) || s.waits(key, p):
			settled = false // the plan may lack what a later look finds, or what takes over is not begun yet
			continue
		case !served && s.asksFor(key, source.Resource) && !source.Defined:
			s.log.Info("resource is not served; what is known of it stays known", "source", source.Name) // its objects may live on
		case !served && s.asksFor(key, source.Resource):
			if found.FailedGroup(source.Resource.Group) || !s.discovery.Gone(ctx, source.Resource, false) {
				settled = false
				continue
			}
			s.log.Info("resource went while nobody watched, handing on its deletions", "source", source.Name)
			s.bury(group, key, source, (*informer.Informer).DeleteAll)
		case key.auxiliary:
			s.config.State.Forget(source.Name)
		default:
			s.log.Info("source is watched no more, handing on that its objects left", "source", source.Name)
			source.Scope = none
			s.bury(group, key, source, (*informer.Informer).LeaveAll)
		}
		s.settled[source.Name] = true
	}
	return settled
}

// waits reports whether an informer that may take over objects of a source is not begun, or whether the source's own place is taken.
func (s *Fleet) waits(of watchKey, p *plan) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range p.informers {
		r := s.running[key]
		if key.GroupResource == of.GroupResource && key.auxiliary == of.auxiliary && (r == nil || r.removed) {
			return true
		}
	}
	r := s.running[of]
	return r != nil && r.removed
}

// bury hands on what became of all that is known of a source that is not watched any more.
func (s *Fleet) bury(group *sync.WaitGroup, key watchKey, source informer.Source, handOn func(*informer.Informer)) {
	memory := s.config.State.Resume(source)
	i := informer.New(informer.Config{
		Resource: source.Resource, Namespace: source.Namespace, Source: source, Auxiliary: key.auxiliary, Logger: s.log,
		Record: s.config.State.Record(source), Known: memory.Known, ResumeAt: memory.At,
	})
	s.config.OnStart(i)
	s.mu.Lock()
	if s.running[key] == nil {
		s.running[key] = &running{informer: i, wanted: &wanted{}, cancel: func() {}, removed: true}
	}
	s.mu.Unlock()
	group.Go(func() { // a handler may hold it up
		handOn(i)
		s.config.State.Forget(source.Name)
		s.mu.Lock()
		if r := s.running[key]; r != nil && r.informer == i {
			delete(s.running, key)
		}
		s.mu.Unlock()
		s.lookAgain() // it may be back
	})
}

// asksFor reports whether a scope would watch the resource of a source if it were served.
func (s *Fleet) asksFor(key watchKey, gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(s.config.Scopes, func(scope Scope) bool {
		return scope.Auxiliary == key.auxiliary && len(scope.matching(gvr)) > 0
	})
}

// runs reports whether the source is watched, or was by this process.
func (s *Fleet) runs(key watchKey, source string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[key]
	return r != nil && r.informer.Source().Name == source || s.left[key] != nil
}
