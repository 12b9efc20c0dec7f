package fleet

import (
	"context"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// source returns the source of an informer, which identifies the informer in a checkpoint. The source name does not
// contain the selectors. It also does not contain the version, because objects are the same in all versions.
func (k watchKey) source(w *wanted) informer.Source {
	return informer.Source{
		Name: k.name(), Resource: w.served.WithVersion(w.version), Namespace: k.namespace,
		LabelSelector: w.selection.labels, FieldSelector: w.selection.fields, Scope: w.selection.String(),
		Defined: w.served.Defined,
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

// keyOfSource returns the key of the informer for a source.
func keyOfSource(source informer.Source) watchKey {
	return watchKey{source.Resource.GroupResource(), source.Namespace, strings.HasPrefix(source.Name, auxiliaryPrefix)}
}

// auxiliaryPrefix is the first part of the names of auxiliary sources. It is unambiguous, because resource names
// contain no spaces.
const auxiliaryPrefix = "auxiliary "

// resume configures an informer to begin with the stored state of its source. If the scope has changed, the informer
// compares the stored state with a list.
func (s *Fleet) resume(config *informer.Config) {
	source := config.Source
	memory := s.config.State.Resume(source)
	config.Known, config.ResumeAt = memory.Known, memory.At
	config.Relist = memory.At != "" && memory.Scope != source.Scope
	if config.Relist {
		s.log.Info("the `watch` configuration of a resource has changed, listing its objects",
			"source", source.Name, "was", memory.Scope, "is", source.Scope)
	}
}

const (
	// mixed is the scope of a source that has taken over objects from other sources and has not been listed since then. No
	// selection has this text.
	mixed = "(several)"
	// none is the scope of a source that is no longer watched, until its objects have been reported as left.
	none = "(none)"
)

// takeOver moves objects of remembered sources to a source that watches these objects from now on.
func (s *Fleet) takeOver(source informer.Source, key watchKey, p *plan) {
	var shares []informer.Share
	for _, other := range s.config.State.Remembered() {
		of := keyOfSource(other)
		if of.GroupResource != key.GroupResource || of.auxiliary != key.auxiliary || of == key {
			continue
		}
		within := func(namespace string) bool { return p.owner(key.GroupResource, key.auxiliary, namespace) == key }
		if of.namespace == "" || within(of.namespace) {
			shares = append(shares, informer.Share{Source: other.Name, In: within})
		}
	}
	if len(shares) > 0 {
		source.Scope = mixed
		s.config.State.TakeOver(source, shares)
	}
}

// reconcileRemembered handles each source that the previous process watched and this process does not watch. It handles
// each source once. If the resource was removed from the cluster, its objects are reported as deleted. If no scope
// selects the resource, the objects that no other source took over are reported as left. It returns false if it cannot
// yet decide what to do with a source.
func (s *Fleet) reconcileRemembered(ctx context.Context, found *discovery.Catalog, p *plan) bool {
	settled := true
	for _, source := range s.config.State.Remembered() {
		key := keyOfSource(source)
		if s.settled[source.Name] {
			continue
		}
		served := slices.ContainsFunc(found.Served, func(served discovery.Served) bool {
			return served.GroupResource == key.GroupResource
		})
		switch {
		case served && (p.open || len(found.Failed) > 0) || s.waits(key, p):
			settled = false // decide later, when discovery is complete and all informers run
			continue
		case !served && s.asksFor(key, source.Resource) && !source.Defined:
			// The objects may still exist.
			s.log.Info("resource is not served, keeping its objects in the checkpoint", "source", source.Name)
		case !served && s.asksFor(key, source.Resource):
			if found.FailedGroup(source.Resource.Group) || !s.discovery.Gone(ctx, source.Resource, source.Namespace, false) {
				settled = false
				continue
			}
			s.log.Info("resource was removed while the bridge was down, sending deletions of its objects", "source", source.Name)
			s.bury(key, source, (*informer.Informer).DeleteAll)
		case key.auxiliary:
			s.config.State.Forget(source.Name)
		default:
			s.log.Info("source is no longer watched, sending leave events for its objects", "source", source.Name)
			source.Scope = none
			s.bury(key, source, (*informer.Informer).LeaveAll)
		}
		s.settled[source.Name] = true
	}
	return settled
}

// waits reports whether an informer that may take over objects of a source has not started, or whether the key of the
// source is still in use.
func (s *Fleet) waits(of watchKey, p *plan) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range p.informers {
		r := s.running[key]
		if key.GroupResource == of.GroupResource && key.auxiliary == of.auxiliary && (r == nil || r.ending) {
			return true
		}
	}
	r := s.running[of]
	return r != nil && r.ending
}

// bury reports all known objects of a source that is no longer watched as deleted or left, depending on handOn.
func (s *Fleet) bury(key watchKey, source informer.Source, handOn func(*informer.Informer)) {
	memory := s.config.State.Resume(source)
	i := informer.New(informer.Config{
		Source: source, Auxiliary: key.auxiliary, Logger: s.log,
		Record: s.config.State.Record(source), Known: memory.Known, ResumeAt: memory.At,
	})
	s.config.OnStart(i)
	r := &running{informer: i, ended: make(chan struct{}), ending: true}
	close(r.ended) // the informer does not run
	s.mu.Lock()
	if s.running[key] == nil {
		s.running[key] = r
	}
	s.mu.Unlock()
	s.end(key, r, handOn)
}

// asksFor reports whether a scope selects the resource of a source.
func (s *Fleet) asksFor(key watchKey, gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(s.config.Scopes, func(scope Scope) bool {
		return scope.Auxiliary == key.auxiliary && len(scope.matching(gvr)) > 0
	})
}
