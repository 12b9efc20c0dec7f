package configtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	mergepatch "github.com/evanphx/json-patch/v5"
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

// firstVersion is the resourceVersion of the objects that exist before the first change. Change n has firstVersion + n.
const firstVersion = 1000

// story is the input of a test: the objects that exist, and the changes, with the states that an API server would send.
type story struct {
	served  []discovery.Served // the resources of all objects
	objects []change           // the objects that exist, as additions
	changes []change

	file   *File
	states map[string]state // the current objects, by the resource and name
	again  map[string]int   // how often an object was created
}

// state is a state of an object.
type state = *unstructured.Unstructured

// change is a change of one object. old is nil for an addition; now is nil for a deletion.
type change struct {
	name     string // of the change, for messages
	resource schema.GroupVersionResource
	old, now state
	// last is the object that an API server sends if old is deleted, or no longer selected: the last state, with the
	// resourceVersion of the change. It is nil for an addition.
	last    state
	version string // the resourceVersion of the change
}

// tell reads the objects and changes of a test. Mistakes are reported in the file.
func (f *File) tell(test int) *story {
	s, c := &story{file: f, states: map[string]state{}, again: map[string]int{}}, &f.Tests[test]
	at := f.at.At(fmt.Sprintf("tests[%d]", test))
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
	if o, ok := s.parse(at, key, node); ok {
		o.version = strconv.Itoa(firstVersion)
		s.objects = append(s.objects, s.apply(at, key, "add", o)...)
	}
}

// add adds a change.
func (s *story) add(at *strictyaml.Section, c *Change) {
	verbs := map[string]*yaml.Node{"add": c.Add, "update": c.Update, "patch": c.Patch, "delete": c.Delete}
	given := at.Given("add", "update", "patch", "delete")
	if len(given) != 1 {
		at.Report("", "must have exactly one of the keys add, update, patch and delete", "keep one of them")
		return
	}
	o, ok := s.parse(at, given[0], verbs[given[0]])
	if !ok {
		return
	}
	number := len(s.changes) + 1
	o.version = strconv.Itoa(firstVersion + number)
	o.name = fmt.Sprintf("change %d (%s %s)", number, given[0], s.name(&o))
	s.changes = append(s.changes, s.apply(at, given[0], given[0], o)...)
}

// name returns the name of an object for messages, and as its uid.
func (s *story) name(c *change) string {
	return event.GroupResource(c.resource) + "/" + c.now.GetNamespace() + "/" + c.now.GetName()
}

// apply changes an object. It returns no change if there is a mistake.
func (s *story) apply(at *strictyaml.Section, key, verb string, c change) []change {
	name := s.name(&c)
	c.old = s.states[name] // nil after a deletion
	switch exists := c.old != nil; {
	case verb == "add" && exists:
		at.Report(key, name+" already exists", "change it with update or patch, or choose another name")
		return nil
	case verb != "add" && !exists:
		at.Report(key, name+" does not exist", "add it before, or correct its kind, namespace and name")
		return nil
	}
	var err error
	switch verb {
	case "add":
		s.again[name]++
	case "delete":
		c.now = nil
	case "patch":
		c.now, err = patched(c.old, c.now)
	}
	if err == nil {
		err = s.number(&c, name, verb)
	}
	if err != nil {
		at.Report(key, err.Error(), "correct it")
		return nil
	}
	if c.old != nil {
		c.last = c.old.DeepCopy()
		c.last.SetResourceVersion(c.version)
	}
	s.states[name] = c.now
	return []change{c}
}

// number sets the uid and the resourceVersion of the new state, if it has none.
func (s *story) number(c *change, name, verb string) error {
	if c.now == nil {
		return nil
	}
	switch given := c.now.GetResourceVersion(); {
	case given == "" || verb == "patch" && given == c.old.GetResourceVersion():
		c.now.SetResourceVersion(c.version)
	case c.old != nil && given == c.old.GetResourceVersion():
		return errors.New("has the resourceVersion of the state before: remove metadata.resourceVersion")
	default:
		c.version = given
	}
	switch uid := c.now.GetUID(); {
	case c.old != nil && uid != "" && uid != c.old.GetUID():
		return errors.New("has another uid than the state before: remove metadata.uid, or use delete and add")
	case c.old != nil:
		c.now.SetUID(c.old.GetUID())
	case uid == "" && s.again[name] > 1:
		c.now.SetUID(types.UID(name + "#" + strconv.Itoa(s.again[name])))
	case uid == "":
		c.now.SetUID(types.UID(name))
	}
	return nil
}

// patched applies a JSON merge patch.
func patched(old, patch state) (state, error) {
	text, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	change, err := json.Marshal(patch)
	if err == nil {
		text, err = mergepatch.MergePatch(text, change)
	}
	if err != nil {
		return nil, err
	}
	now := &unstructured.Unstructured{}
	return now, utiljson.Unmarshal(text, &now.Object)
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
	c.now = &unstructured.Unstructured{Object: content}
	gvk := c.now.GroupVersionKind()
	for _, part := range []struct{ name, example string }{
		{"apiVersion", "apiVersion: apps/v1"},
		{"kind", "kind: Deployment"},
		{"metadata.name", "metadata: {namespace: shop, name: web}"},
	} {
		value, found, _ := unstructured.NestedFieldNoCopy(content, strings.Split(part.name, ".")...)
		switch _, isText := value.(string); {
		case !found:
			at.Report(key, "has no "+part.name, "add "+part.example)
			return c, false
		case !isText || value == "":
			at.Report(key, part.name+" is not a string, or is empty", "write or quote it: "+part.example)
			return c, false
		}
	}
	guess, _ := meta.UnsafeGuessKindToResource(gvk)
	resources := s.file.Resources
	if plural := resources[gvk.GroupKind().String()]; plural != "" {
		guess.Resource = plural
	} else if plural := resources[gvk.Kind]; plural != "" {
		guess.Resource = plural
	}
	c.resource = guess
	served := s.serve(guess, gvk.Kind, c.now.GetNamespace() != "")
	switch objects := "some objects of " + event.GroupResource(guess); {
	case served.Namespaced != (c.now.GetNamespace() != ""):
		at.Report(key, objects+" have a namespace, and others do not", "add metadata.namespace to all of them, or to none")
		return c, false
	case served.Versions[0] != guess.Version:
		at.Report(key, objects+" have another apiVersion", "use the same apiVersion for all of them")
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
