package evaluate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kubeyaml "sigs.k8s.io/yaml"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
)

// story is the input of a test: the objects that exist, and the changes, with the states that an API server would send.
type story struct {
	served  []discovery.Served // the resources of all objects
	objects []change           // the objects that exist, as additions
	changes []change
	names   []string // of the changes, for messages

	resources map[string]string // File.Resources
	states    map[string]state  // the current objects, by the resource and name
	again     map[string]int    // how often an object was created
}

// tell reads the objects and changes of a test. Mistakes are reported in the file.
func (f *File) tell(c *Case, at *strictyaml.Section) *story {
	s := &story{resources: f.Resources, states: map[string]state{}, again: map[string]int{}}
	for n, node := range f.Objects {
		s.exists(f.at, fmt.Sprintf("objects[%d]", n), node)
	}
	for n, node := range c.Objects {
		s.exists(at, fmt.Sprintf("objects[%d]", n), node)
	}
	for n := range c.Changes {
		s.add(at.At(fmt.Sprintf("changes[%d]", n)), &c.Changes[n])
	}
	return s
}

// exists adds an object that exists before the first change.
func (s *story) exists(at *strictyaml.Section, key string, node *yaml.Node) {
	if c, ok := s.parse(at, key, node); ok && s.apply(at, key, "add", &c, firstVersion) {
		s.objects = append(s.objects, c)
	}
}

// add adds a change. Change n has the resourceVersion firstVersion + n.
func (s *story) add(at *strictyaml.Section, change *Change) {
	given := at.Given("add", "patch", "delete")
	if len(given) != 1 {
		at.Report("", "must have exactly one of the keys add, patch and delete", "keep one of them")
		return
	}
	verb, number := given[0], len(s.changes)+1
	node := map[string]*yaml.Node{"add": change.Add, "patch": change.Patch, "delete": change.Delete}[verb]
	c, ok := s.parse(at, verb, node)
	if !ok {
		return
	}
	name := fmt.Sprintf("change %d (%s %s)", number, verb, nameOf(&c))
	if s.apply(at, verb, verb, &c, firstVersion+number) {
		s.changes, s.names = append(s.changes, c), append(s.names, name)
	}
}

// nameOf returns the name of a changed object for messages, and as its uid.
func nameOf(c *change) string {
	return event.GroupResource(c.resource) + "/" + c.now.GetNamespace() + "/" + c.now.GetName()
}

// apply changes an object. It returns false if there is a mistake.
func (s *story) apply(at *strictyaml.Section, key, verb string, c *change, version int) bool {
	name := nameOf(c)
	c.version, c.old = strconv.Itoa(version), s.states[name]
	switch {
	case verb == "add" && c.old != nil:
		at.Report(key, name+" already exists", "change it with patch, or choose another name")
		return false
	case verb != "add" && c.old == nil:
		at.Report(key, name+" does not exist", "add it before, or correct its kind, namespace and name")
		return false
	}
	switch verb {
	case "add":
		c.operation = event.Added
		uid := name
		if s.again[name]++; s.again[name] > 1 {
			uid += "#" + strconv.Itoa(s.again[name])
		}
		c.now.SetUID(cmp.Or(c.now.GetUID(), types.UID(uid)))
	case "patch":
		c.operation = event.Updated
		patch := c.now.Object
		c.now = c.old.DeepCopy()
		merge(c.now.Object, patch)
		c.now.SetUID(c.old.GetUID())
	case "delete":
		c.operation, c.now = event.Deleted, nil
	}
	if c.now != nil {
		c.now.SetResourceVersion(c.version)
	}
	s.states[name] = c.now
	return true
}

// merge applies a JSON merge patch.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, key)
		case map[string]any:
			part, ok := into[key].(map[string]any)
			if !ok {
				part = map[string]any{}
			}
			merge(part, value)
			into[key] = part
		default:
			into[key] = value
		}
	}
}

// parse reads an object, and adds its resource to those that are served.
func (s *story) parse(at *strictyaml.Section, key string, node *yaml.Node) (c change, ok bool) {
	if node == nil {
		return c, false // the mistake was reported
	}
	content, err := decode[map[string]any](node)
	if err != nil {
		at.Report(key, err.Error(), "write an object as kubectl apply takes it")
		return c, false
	}
	for _, path := range []string{"apiVersion", "kind", "metadata.name"} {
		if value, _, err := unstructured.NestedString(content, strings.Split(path, ".")...); err != nil || value == "" {
			at.Report(key, "has no "+path+", or it is not a string",
				"example: {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}}")
			return c, false
		}
	}
	c.now = &unstructured.Unstructured{Object: content}
	gvk := c.now.GroupVersionKind()
	c.resource, _ = meta.UnsafeGuessKindToResource(gvk)
	for _, kind := range []string{gvk.Kind, gvk.GroupKind().String()} {
		if plural := s.resources[kind]; plural != "" {
			c.resource.Resource = plural
		}
	}
	c.served = s.serve(c.resource, gvk.Kind, c.now.GetNamespace() != "")
	if c.served.Namespaced != (c.now.GetNamespace() != "") || c.served.Versions[0] != c.resource.Version {
		at.Report(key, "differs from other objects of "+event.GroupResource(c.resource),
			"use the same apiVersion for all of them, and metadata.namespace for all or none")
		return c, false
	}
	return c, true
}

// serve returns what the API server serves as a resource. A new resource is served as it is used first.
func (s *story) serve(r schema.GroupVersionResource, kind string, namespaced bool) discovery.Served {
	n := slices.IndexFunc(s.served, func(o discovery.Served) bool { return o.GroupResource == r.GroupResource() })
	if n < 0 {
		n = len(s.served)
		s.served = append(s.served, discovery.Served{
			GroupResource: r.GroupResource(), Kind: kind, Namespaced: namespaced, Versions: []string{r.Version},
		})
	}
	return s.served[n]
}

// decode reads a value as kubectl reads YAML. Integers stay integers.
func decode[T any](node *yaml.Node) (value T, err error) {
	text, err := yaml.Dump(node)
	if err != nil {
		return value, err
	}
	if text, err = kubeyaml.YAMLToJSON(text); err != nil {
		return value, err
	}
	return value, utiljson.Unmarshal(text, &value)
}
