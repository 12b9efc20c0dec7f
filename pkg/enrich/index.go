package enrich

import (
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

const (
	// maxDeleted and deletedFor limit how many facts of deleted objects are kept, and for how long: longer than most Pods
	// take to terminate.
	maxDeleted, deletedFor = 32768, time.Hour
	// maxDepth limits the length of a chain of owners.
	maxDepth = 32
)

// Needs says which parts of a context are needed. The zero value needs nothing.
type Needs struct {
	// The top owner of the object: a Pod's Deployment, a Job's CronJob. The bridge watches `replicasets`, `statefulsets`,
	// `daemonsets` and `deployments` in `apps`, and `jobs` and `cronjobs` in `batch` for this. Add other resources that
	// own these, such as custom resources, to `watch`; otherwise the last known owner reference counts.
	Owner bool `yaml:"owner" default:"false" example:"true"`
	// The labels of the object's namespace. The bridge watches `namespaces` in the whole cluster for this.
	NamespaceLabels bool `yaml:"namespaceLabels" default:"false" example:"true"`
	// For Kubernetes Events: the labels of the object that they are about and, with `owner`, its top owner. The bridge
	// watches `pods`, `nodes` if the whole cluster is watched, and the resources of `owner` for this.
	InvolvedObject bool `yaml:"involvedObject" default:"false" example:"true"`
}

// Or returns the needs of n and other together.
func (n Needs) Or(other Needs) Needs {
	return Needs{
		n.Owner || other.Owner,
		n.NamespaceLabels || other.NamespaceLabels,
		n.InvolvedObject || other.InvolvedObject,
	}
}

// Options are the options of an Index.
type Options struct {
	// Needs are the combined needs of all callers of Context.
	Needs Needs
	// Bytes returns the JSON of an object without what must not be known of it. If it is nil, the whole object is used.
	Bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)
}

// Index stores facts. Create it with New.
type Index struct {
	options Options
	facts   cache.Indexer  // of *fact, by uid
	none    *event.Context // the empty context, shared

	mu      sync.Mutex
	deleted []*fact // in the order of their deletion; those that exceed the limits are removed at the next deletion

	maxDeleted int
	deletedFor time.Duration
}

// byName is the index over namespaces, which no reference names by uid, and over nodes, whose uid kubelets do not use
// in their Events. Other facts are not in it, because an entry takes as much memory as a fact.
const byName = "name"

// fact is what is known about one object. It is immutable.
type fact struct {
	uid     string
	name    string // key in the index byName; empty if the fact is not in it
	owner   unique.Handle[event.Owner]
	labels  unique.Handle[string]
	deleted time.Time // zero if the object exists
}

// New returns an empty index.
func New(options Options) *Index {
	if options.Bytes == nil {
		options.Bytes = func(_ schema.GroupVersionResource, o *object.Object) ([]byte, error) { return o.Bytes() }
	}
	key := func(obj any) (string, error) { return obj.(*fact).uid, nil }
	names := func(obj any) ([]string, error) {
		if name := obj.(*fact).name; name != "" {
			return []string{name}, nil
		}
		return nil, nil
	}
	return &Index{
		options: options, facts: cache.NewIndexer(key, cache.Indexers{byName: names}), none: &event.Context{},
		maxDeleted: maxDeleted, deletedFor: deletedFor,
	}
}

// Len returns the number of facts, including those of deleted objects.
func (x *Index) Len() int { return len(x.facts.ListKeys()) }

func (x *Index) get(uid string) *fact {
	if obj, exists, err := x.facts.GetByKey(uid); err == nil && exists {
		return obj.(*fact)
	}
	return nil
}

// set stores a fact in place of the known one. If the new fact has neither owner nor labels, it removes the known one.
// known may be nil.
func (x *Index) set(f, known *fact) {
	switch { // the key and index functions never return an error
	case f.owner != (fact{}).owner || f.labels != (fact{}).labels:
		_ = x.facts.Update(f)
	case known != nil:
		_ = x.facts.Delete(known)
	}
}

// markDeleted marks a fact's object as deleted, and removes facts of deleted objects that exceed the limits.
func (x *Index) markDeleted(f *fact, now time.Time) {
	dead := *f
	dead.deleted = now
	x.mu.Lock()
	defer x.mu.Unlock()
	_ = x.facts.Update(&dead)
	x.deleted = append(x.deleted, &dead)
	end := max(0, len(x.deleted)-x.maxDeleted)
	for end < len(x.deleted) && now.Sub(x.deleted[end].deleted) > x.deletedFor {
		end++
	}
	for _, old := range x.deleted[:end] {
		if x.get(old.uid) == old { // otherwise a handler has reported the object again
			_ = x.facts.Delete(old)
		}
	}
	x.deleted = slices.Delete(x.deleted, 0, end)
}

// named returns the fact with a key in the index byName: that of the existing object, or else of the one that was
// deleted last. It returns nil if there is none.
func (x *Index) named(name string) (found *fact) {
	all, err := x.facts.ByIndex(byName, name)
	if err != nil {
		return nil
	}
	for _, obj := range all {
		f := obj.(*fact)
		if found == nil || f.deleted.IsZero() || !found.deleted.IsZero() && f.deleted.After(found.deleted) {
			found = f
		}
	}
	return found
}

// Context returns the parts of an object's context that are needed and known. A handler of the index must have seen the
// object. For a Kubernetes Event, Context reads the object's bytes.
func (x *Index) Context(resource schema.GroupVersionResource, o *object.Object, needs Needs) *event.Context {
	var c event.Context
	switch {
	case needs.InvolvedObject && isEvent(resource):
		x.involved(&c, resource, o, needs.Owner)
	case needs.Owner:
		if f := x.get(string(o.UID)); f != nil {
			c.Owner = x.top(f)
		}
	}
	if needs.NamespaceLabels && o.Namespace != "" {
		if f := x.named("namespaces/" + o.Namespace); f != nil {
			c.NamespaceLabels = f.labelText()
		}
	}
	if c == (event.Context{}) {
		return x.none
	}
	return &c
}

// involved adds to c the labels and, if owner is set, the top owner of the object that an Event is about.
func (x *Index) involved(c *event.Context, resource schema.GroupVersionResource, o *object.Object, owner bool) {
	raw, err := x.options.Bytes(resource, o)
	if err != nil {
		return // the encoder reports the error
	}
	name := "involvedObject"
	if resource.Group != "" {
		name = "regarding"
	}
	about := parseReference(member(raw, name))
	f := x.get(about.UID)
	switch {
	case f != nil || about.APIVersion != "" && about.APIVersion != "v1":
	case about.Kind == "Node":
		f = x.named("nodes/" + about.Name)
	case about.Kind == "Namespace":
		f = x.named("namespaces/" + about.Name)
	}
	if f != nil {
		c.InvolvedLabels = f.labelText()
	}
	if !owner || about == (event.Owner{}) {
		return
	}
	if c.Owner = about; f != nil && f.owner != (fact{}).owner {
		c.Owner = x.top(f)
	}
}

// top follows the chain of owners and returns the last known one. It stops at a cycle.
func (x *Index) top(f *fact) event.Owner {
	var seen [maxDepth]string
	var last event.Owner
	for depth := range maxDepth {
		if f == nil || f.owner == (fact{}).owner {
			break
		}
		next := f.owner.Value()
		seen[depth] = f.uid
		if slices.Contains(seen[:depth+1], next.UID) {
			break
		}
		last, f = next, x.get(next.UID)
	}
	return last
}

func (f *fact) labelText() string {
	if f.labels == (fact{}).labels {
		return ""
	}
	return f.labels.Value()
}

// isEvent reports whether a resource is Kubernetes Events, in either of its two API groups.
func isEvent(r schema.GroupVersionResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}
