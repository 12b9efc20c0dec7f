package enrich

import (
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// maxDeleted is the maximum number of keys of deleted objects, and deletedFor is the maximum age of their facts. Most
	// Pods terminate in less time than deletedFor.
	maxDeleted, deletedFor = 32768, time.Hour
	// maxDepth limits the length of a chain of owners.
	maxDepth = 32
)

// Needs adds information about related objects to the attributes of events. The bridge sends no requests to look up
// this information. Instead, it watches the required resources in the namespaces of `watch`. It does not send events
// for resources that `watch` does not select.
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
//
// A fact is stored by the uid of its object. The fact of a namespace or a node is also stored by its name, because no
// reference contains the uid of a namespace, and the Events of kubelets do not contain the uid of the node.
type Index struct {
	options Options

	mu      sync.RWMutex
	facts   map[string]*fact      // of existing objects
	deleted *cache.LRUExpireCache // *fact of deleted objects
}

// fact contains the known data about one object. It is immutable.
type fact struct {
	uid    string
	name   string // the second key, such as "namespaces/shop"; empty for most resources
	owner  unique.Handle[event.Owner]
	labels unique.Handle[string]
}

func (f *fact) keys() []string {
	if f.name == "" {
		return []string{f.uid}
	}
	return []string{f.uid, f.name}
}

// New returns an empty index.
func New(options Options) *Index {
	if options.Bytes == nil {
		options.Bytes = func(_ schema.GroupVersionResource, o *object.Object) ([]byte, error) { return o.Bytes() }
	}
	return &Index{options: options, facts: map[string]*fact{}, deleted: cache.NewLRUExpireCache(maxDeleted)}
}

// get returns the fact with the given uid or name, and whether its object still exists. It returns nil if there is
// none.
func (x *Index) get(key string) (f *fact, exists bool) {
	x.mu.RLock()
	f, exists = x.facts[key]
	x.mu.RUnlock()
	if !exists {
		deleted, _ := x.deleted.Get(key)
		f, _ = deleted.(*fact)
	}
	return f, exists
}

// set replaces what is known about an object. It stores nothing if f has neither an owner nor labels.
func (x *Index) set(f *fact) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, key := range f.keys() {
		delete(x.facts, key)
		x.deleted.Remove(key)
		if f.owner != (fact{}).owner || f.labels != (fact{}).labels {
			x.facts[key] = f
		}
	}
}

// markDeleted records that the object of a fact was deleted.
func (x *Index) markDeleted(f *fact) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, key := range f.keys() {
		x.deleted.Add(key, f, deletedFor)
		if x.facts[key] == f { // otherwise another object has this name
			delete(x.facts, key)
		}
	}
}

// Context returns the parts of an object's context that are needed and known. A handler of the index must already have
// received the object. For a Kubernetes Event, Context reads the bytes of the Event.
func (x *Index) Context(resource schema.GroupVersionResource, o *object.Object, needs Needs) *event.Context {
	var c event.Context
	switch {
	case needs.InvolvedObject && isEvent(resource):
		x.involved(&c, resource, o, needs.Owner)
	case needs.Owner:
		if f, _ := x.get(string(o.UID)); f != nil {
			c.Owner = x.top(f)
		}
	}
	if needs.NamespaceLabels && o.Namespace != "" {
		if f, _ := x.get("namespaces/" + o.Namespace); f != nil {
			c.NamespaceLabels = f.labelText()
		}
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
	about := ownerOf(decode[metav1.OwnerReference](raw, name))
	f, _ := x.get(about.UID)
	switch {
	case f != nil || about.APIVersion != "" && about.APIVersion != "v1":
	case about.Kind == "Node":
		f, _ = x.get("nodes/" + about.Name)
	case about.Kind == "Namespace":
		f, _ = x.get("namespaces/" + about.Name)
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
		last = next
		f, _ = x.get(next.UID)
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
