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
	// DefaultDeleted is how many facts of deleted objects are kept.
	DefaultDeleted = 32768
	// DefaultDeletedFor is for how long they are kept: longer than most Pods may take to end.
	DefaultDeletedFor = time.Hour
	// maxDepth bounds a chain of owners.
	maxDepth = 32
)

// Needs is what is asked for. The zero value asks for nothing.
type Needs struct {
	// The top owner of the object: a Pod's Deployment, a Job's CronJob. Watched for it: `replicasets`, `statefulsets`,
	// `daemonsets` and `deployments` in `apps`, `jobs` and `cronjobs` in `batch`. Put others that own such, as in custom
	// resources, into `watch`; else the last owner reference that is known counts.
	Owner bool `yaml:"owner" default:"false" example:"true"`
	// The labels of the object's namespace. Watched for it: `namespaces`, in the whole cluster.
	NamespaceLabels bool `yaml:"namespaceLabels" default:"false" example:"true"`
	// For Kubernetes Events: the labels of the object that they are about, and with `owner` its top owner. Watched for it:
	// `pods`, `nodes` where the whole cluster is watched, and what is for `owner`.
	InvolvedObject bool `yaml:"involvedObject" default:"false" example:"true"`
}

// Or returns what is needed by either.
func (n Needs) Or(other Needs) Needs {
	return Needs{n.Owner || other.Owner, n.NamespaceLabels || other.NamespaceLabels, n.InvolvedObject || other.InvolvedObject}
}

// Options of an Index.
type Options struct {
	// Needs of all who will ask.
	Needs Needs
	// Bytes gives what may be known of an object. Nil: all of it.
	Bytes func(schema.GroupVersionResource, *object.Object) ([]byte, error)
	// Deleted and DeletedFor bound for how many deleted objects facts are kept, and how long; 0: the defaults. Those that
	// are too old go with the next deletion.
	Deleted    int
	DeletedFor time.Duration
}

// Index holds facts. Make it with New.
type Index struct {
	options Options
	facts   cache.Indexer  // of *fact, by uid
	none    *event.Context // where nothing is known

	mu      sync.Mutex
	deleted []*fact // in the order of their deletion
}

// byName is the index over namespaces, which nothing names by uid, and nodes, which kubelets do not name so in their Events.
// Other facts are not in it: an entry costs as much as a fact.
const byName = "name"

// fact is what is known of one object. It is immutable.
type fact struct {
	uid     string
	name    string // of byName; empty: not in that index
	owner   unique.Handle[event.Owner]
	labels  unique.Handle[string]
	deleted time.Time // zero: it lives
}

// New makes an empty index.
func New(options Options) *Index {
	if options.Deleted == 0 {
		options.Deleted = DefaultDeleted
	}
	if options.DeletedFor == 0 {
		options.DeletedFor = DefaultDeletedFor
	}
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
	return &Index{options: options, facts: cache.NewIndexer(key, cache.Indexers{byName: names}), none: &event.Context{}}
}

// Len is how many facts there are, those of deleted objects among them.
func (x *Index) Len() int { return len(x.facts.ListKeys()) }

func (x *Index) get(uid string) *fact {
	if obj, exists, err := x.facts.GetByKey(uid); err == nil && exists {
		return obj.(*fact)
	}
	return nil
}

// set stores a fact in the place of another, or takes that away if there is nothing to know any more.
func (x *Index) set(f, known *fact) {
	switch { // keys and indices of facts never fail
	case f.owner != (fact{}).owner || f.labels != (fact{}).labels:
		_ = x.facts.Update(f)
	case known != nil:
		_ = x.facts.Delete(known)
	}
}

// bury notes that the object of a fact was deleted, and forgets what is long gone.
func (x *Index) bury(f *fact, now time.Time) {
	dead := *f
	dead.deleted = now
	x.mu.Lock()
	defer x.mu.Unlock()
	_ = x.facts.Update(&dead)
	x.deleted = append(x.deleted, &dead)
	end := max(0, len(x.deleted)-x.options.Deleted)
	for end < len(x.deleted) && now.Sub(x.deleted[end].deleted) > x.options.DeletedFor {
		end++
	}
	for _, old := range x.deleted[:end] {
		if x.get(old.uid) == old { // else it lives again
			_ = x.facts.Delete(old)
		}
	}
	x.deleted = slices.Delete(x.deleted, 0, end)
}

// named gives the fact of a name: of the object that lives, or else of the one that was deleted last.
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

// Context gives what is known of an object that a handler of the index has seen, as far as needs ask. The object's bytes are
// asked for if it is an Event.
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

// involved looks at the object that an Event is about.
func (x *Index) involved(c *event.Context, resource schema.GroupVersionResource, o *object.Object, owner bool) {
	raw, err := x.options.Bytes(resource, o)
	if err != nil {
		return // the encoder will say so
	}
	name := "involvedObject"
	if resource.Group != "" {
		name = "regarding"
	}
	about := named(member(raw, name))
	f := x.get(about.UID)
	if f == nil && (about.APIVersion == "" || about.APIVersion == "v1") {
		f = x.named(nameOf(about.Kind, about.Name))
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

// nameOf is the entry of an object in byName; empty if there is none for the kind.
func nameOf(kind, name string) string {
	switch kind {
	case "Node":
		return "nodes/" + name
	case "Namespace":
		return "namespaces/" + name
	}
	return ""
}

// top follows a fact's owners as far as they are known. It does not go round in circles.
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

// isEvent reports whether a resource is that of Kubernetes Events, under one of its two names.
func isEvent(r schema.GroupVersionResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}
