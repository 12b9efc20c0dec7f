package informer

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// source names an informer for a checkpoint. The version is not part of the name: objects are the same in all of them.
func (k watchKey) source(gvr schema.GroupVersionResource, accepted []string) Source {
	name := k.GroupResource.String()
	if k.auxiliary {
		name = auxiliaryPrefix + name
	}
	if k.namespace != "" {
		name += " in " + k.namespace
	}
	if len(accepted) > 0 {
		name += " in " + strings.Join(accepted, " or ")
	}
	if k.labels != "" {
		name += " with labels " + k.labels
	}
	if k.fields != "" {
		name += " with fields " + k.fields
	}
	return Source{Name: name, Resource: gvr, Namespace: k.namespace, LabelSelector: k.labels, FieldSelector: k.fields}
}

// keyOfSource is the key whose informer has the source.
func keyOfSource(source Source) watchKey {
	return watchKey{
		source.Resource.GroupResource(), source.Namespace, source.LabelSelector, source.FieldSelector,
		strings.HasPrefix(source.Name, auxiliaryPrefix),
	}
}

// auxiliaryPrefix begins the names of auxiliary sources. The name of a resource has no space.
const auxiliaryPrefix = "auxiliary "

// resume makes an informer begin with what is known of its source.
func (s *Set) resume(config *Config) {
	source := config.Source
	if s.config.Resume != nil {
		config.Known, config.ResumeAt = s.config.Resume(source)
	}
	s.storeFirstList(config)
}

// storeFirstList makes an informer tell of its first list.
func (s *Set) storeFirstList(config *Config) {
	source := config.Source
	if s.config.OnFirstList != nil {
		config.OnFirstList = func(objects []*object.Object, resourceVersion string) bool {
			return s.config.OnFirstList(source, objects, resourceVersion)
		}
	}
}

// bodies of an informer; nil if they stay in memory.
func (s *Set) bodies(source Source) Bodies {
	if s.config.Bodies == nil {
		return nil
	}
	return s.config.Bodies(source)
}

// reconcileRemembered deals, once, with each source that an earlier process watched and that this one does not: its
// resource is gone, and its objects' deletions are still to be handed on; or no scope asks for it any more. It reports
// whether nothing is left in doubt.
func (s *Set) reconcileRemembered(ctx context.Context, group *sync.WaitGroup, found *catalog, p *plan) bool {
	if s.config.Remembered == nil {
		return true
	}
	settled := true
	for _, source := range s.config.Remembered() {
		key := keyOfSource(source)
		switch {
		case s.remembered[source.Name] || s.runs(key, source.Name):
			continue
		case s.serves(found, source.Resource.GroupResource()) && (p.open || len(found.failed) > 0):
			settled = false // the plan may lack what a later look finds
			continue
		case !s.asksFor(key, source.Resource) || s.serves(found, source.Resource.GroupResource()):
			s.log.Info("source is watched no more, its checkpoint is dropped", "source", source.Name)
			s.forget(source.Name)
		case found.failedGroup(source.Resource.Group) || !s.discovery.gone(ctx, source.Resource, false):
			settled = false
			continue
		default:
			s.log.Info("resource went while nobody watched, handing on its deletions", "source", source.Name)
			s.bury(group, key, source)
		}
		if s.remembered == nil {
			s.remembered = map[string]bool{}
		}
		s.remembered[source.Name] = true
	}
	return settled
}

// bury hands on the deletion of all that is known of a source whose resource is gone.
func (s *Set) bury(group *sync.WaitGroup, key watchKey, source Source) {
	config := Config{Resource: source.Resource, Namespace: source.Namespace, Source: source, Auxiliary: key.auxiliary, Bodies: s.bodies(source), Logger: s.log}
	s.resume(&config)
	informer := New(config)
	if s.config.OnStart != nil {
		s.config.OnStart(informer)
	}
	s.mu.Lock()
	s.running[key] = &running{informer: informer, wanted: &wanted{}, cancel: func() {}, removed: true}
	s.mu.Unlock()
	group.Go(func() { // a handler may hold it up
		informer.DeleteAll()
		s.forget(source.Name)
		s.mu.Lock()
		delete(s.running, key)
		s.mu.Unlock()
		s.lookAgain() // it may be back
	})
}

func (s *Set) forget(source string) {
	if s.config.OnForget != nil {
		s.config.OnForget(source)
	}
}

// asksFor reports whether a scope would watch the source if its resource were served.
func (s *Set) asksFor(key watchKey, gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(s.config.Scopes, func(scope Scope) bool {
		if scope.Auxiliary != key.auxiliary || scope.LabelSelector != key.labels || scope.FieldSelector != key.fields || (scope.Exclude != nil && scope.Exclude(gvr)) {
			return false
		}
		if (len(scope.Namespaces) == 0) != (key.namespace == "") || (key.namespace != "" && !slices.Contains(scope.Namespaces, key.namespace)) {
			return false
		}
		return slices.ContainsFunc(scope.Patterns, func(p Pattern) bool { return p.Match(gvr) })
	})
}

func (s *Set) serves(found *catalog, gr schema.GroupResource) bool {
	return slices.ContainsFunc(found.served, func(served Served) bool { return served.GroupResource == gr })
}

// runs reports whether the source is watched, or was by this process.
func (s *Set) runs(key watchKey, source string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[key]
	return r != nil && r.informer.Source().Name == source || s.left[key] != nil
}
