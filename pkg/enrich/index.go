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
	// maxDeleted is the maximum number of facts of deleted objects, and deletedFor is their maximum age. Most Pods
	// terminate in less time than deletedFor.
	maxDeleted, deletedFor = 32768, time.Hour
	// maxDepth limits the length of a chain of owners.
	maxDepth = 32
)

// Needs selects the parts of a context that are needed. The zero value selects none.
type Needs struct {
	// Adds the top owner of the object, such as the Deployment of a Pod or the CronJob of a Job. For this, the bridge
	// watches `replicasets`, `statefulsets`, `daemonsets` and `deployments` in `apps`, and `jobs` and `cronjobs` in
	// `batch`. If other resources, such as custom resources, own these objects, add them to `watch`. Otherwise the last
	// known owner reference is used.
	Owner bool `yaml:"owner" default:"false" example:"true"`
	// Adds the labels of the object's namespace. For this, the bridge watches `namespaces` in the whole cluster.
	NamespaceLabels bool `yaml:"namespaceLabels" default:"false" example:"true"`
	// For Kubernetes Events, adds the labels of the object that the Event is about and, with `owner`, its top owner. For
	// this, the bridge watches `pods`, the resources of `owner` and, if the whole cluster is watched, `nodes`.
	InvolvedObject bool `yaml:"involvedObject" default:"false" example:"true"`
}

// Or returns the needs that n or other selects.
func (n Needs) Or(other Needs) Needs {
	return Needs{
		n.Owner || other.Owner,
		n.NamespaceLabels || other.NamespaceLabels,
		n.InvolvedObject || other.InvolvedObject,
	}
}

// Options configures an Index.
type Options struct {
	// Needs are the combined needs of all callers of Context.
	Needs Needs
	// Bytes returns the JSON of an object without the data that the index must not contain. If Bytes is nil, the index
	// uses the whole object.
	Bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)
}

// Index stores facts. Use New to create an Index.
type Index struct {
	options Options
	facts   cache.Indexer  // contains *fact, by uid
	none    *event.Context // the shared empty context

	mu sync.Mutex
	// deleted contains the facts of deleted objects, oldest first. Facts that exceed the limits are removed at the next
	// deletion.
	deleted []*fact

	maxDeleted int
	deletedFor time.Duration
}

// byName is the name of an index that contains only namespaces and nodes. No reference contains the uid of a namespace,
// and the Events of kubelets do not contain the uid of the node. Other facts are not in this index, because an entry
// takes as much memory as a fact.
const byName = "name"

// fact contains the known data about one object. It is immutable.
type fact struct {
	uid     string
	name    string // key in the index byName, or empty if the fact is not in this index
	owner   unique.Handle[event.Owner]
	labels  unique.Handle[string]
	deleted time.Time // zero if the object still exists
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

// Len returns the number of facts, including the facts of deleted objects.
func (x *Index) Len() int { return len(x.facts.ListKeys()) }

func (x *Index) get(uid string) *fact {
	if obj, exists, err := x.facts.GetByKey(uid); err == nil && exists {
		return obj.(*fact)
	}
	return nil
}

// set replaces the known fact with f. If f has neither an owner nor labels, set only removes the known fact. known is
// nil if the index has no fact about the object.
func (x *Index) set(f, known *fact) {
	switch { // the key and index functions never return an error
	case f.owner != (fact{}).owner || f.labels != (fact{}).labels:
		_ = x.facts.Update(f)
	case known != nil:
		_ = x.facts.Delete(known)
	}
}

// markDeleted records that the object of a fact was deleted. It removes facts of deleted objects that exceed the
// limits.
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
		if x.get(old.uid) == old { // otherwise a handler has added the object again
			_ = x.facts.Delete(old)
		}
	}
	x.deleted = slices.Delete(x.deleted, 0, end)
}

// named returns the fact with the given key in the index byName. If several facts have this key, named prefers the
// object that still exists, and then the object that was deleted last. It returns nil if no fact has this key.
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

// Context returns the parts of an object's context that are needed and known. A handler of the index must already have
// received the object. For a Kubernetes Event, Context reads the bytes of the Event.
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

// involved adds the labels of an Event's involved object to c and, if owner is set, the top owner of this object.
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

// top follows the chain of owners and returns the last known owner. It stops at a cycle.
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

// isEvent reports whether the resource is Kubernetes Events in one of the two API groups.
func isEvent(r schema.GroupVersionResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}
