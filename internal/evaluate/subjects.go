package evaluate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// Placeholders in a report for values that explain does not know.
const (
	unknownUID     = "<uid>"
	unknownVersion = "<resourceVersion>"
)

// findSubjects returns the changes of the objects that the arguments name.
func (e *explainer) findSubjects(ctx context.Context, args []string, stdin io.Reader) (subjects []*subject, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if len(args) == 2 {
		if err := e.connect(ctx); err != nil {
			return nil, err
		}
		s, err := e.readLive(ctx, args[0], args[1])
		return []*subject{s}, err
	}
	states, err := readObjects(args[0], stdin)
	if err != nil {
		return nil, err
	}
	var notes []string
	if !e.Offline && e.Resource == "" {
		if err := e.connect(ctx); err != nil {
			notes = []string{"cannot query the API server: " + err.Error()}
		}
	}
	for _, now := range states {
		served, guess, err := e.servedOf(now)
		if err != nil {
			return nil, err
		}
		s := &subject{notes: slices.Concat(notes, guess)}
		if err := e.finish(s, served, now, stdin); err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}

// readLive reads an object from the cluster.
func (e *explainer) readLive(ctx context.Context, resource, name string) (*subject, error) {
	served, err := e.find(resource)
	if err != nil {
		return nil, err
	}
	namespace, short, found := strings.Cut(name, "/")
	if !found {
		namespace, short = e.Namespace, name
	}
	switch {
	case !served.Namespaced:
		namespace = ""
	case namespace == "":
		namespace = metav1.NamespaceDefault
	}
	now, err := e.get(ctx, e.watchedAs(served), namespace, short, "")
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", served.String(), name, err)
	}
	if now == nil {
		return nil, fmt.Errorf("%s %q not found in the cluster (namespace %q)", served.String(), short, namespace)
	}
	s := &subject{live: true}
	return s, e.finish(s, served, now, nil)
}

// servedOf returns the resource of an object from a file. If it has to guess the resource from the kind, it returns a
// note.
func (e *explainer) servedOf(o state) (served discovery.Served, note []string, err error) {
	gvk := o.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" {
		return served, nil, errors.New("an object in the file lacks apiVersion or kind")
	}
	if served, ok := e.servedAs(gvk); ok {
		return served, nil, nil
	}
	served = discovery.Served{
		Kind:       gvk.Kind,
		Namespaced: o.GetNamespace() != "" || e.Namespace != "",
		Versions:   []string{gvk.Version},
	}
	if e.Resource != "" {
		parsed, err := pattern.ParseResource(e.Resource)
		if err != nil {
			return served, nil, fmt.Errorf("--resource %s: %w", e.Resource, err)
		}
		served.GroupResource = schema.GroupResource{Group: parsed.Group, Resource: parsed.Resource}
		return served, nil, nil
	}
	guess, _ := meta.UnsafeGuessKindToResource(gvk)
	served.GroupResource = guess.GroupResource()
	text := "the resource " + served.String() + " is guessed from the kind; set --resource if it is wrong"
	if e.client != nil {
		text = "the cluster does not serve the kind " + gvk.Kind + " of " + o.GetAPIVersion() + "; " + text
	}
	return served, []string{text}, nil
}

// watchedAs returns the resource with the version that the bridge watches. If the bridge does not watch the resource,
// watchedAs returns the preferred version.
func (e *explainer) watchedAs(served discovery.Served) schema.GroupVersionResource {
	for n := range e.cfg.Watch {
		scope := e.cfg.Watch[n].Scope()
		if version, _ := scope.Covers(served, ""); version != "" {
			return served.WithVersion(version)
		}
	}
	return served.WithVersion(served.Versions[0])
}

// finish sets the change of a subject. now is the object.
func (e *explainer) finish(s *subject, served discovery.Served, now state, stdin io.Reader) error {
	if missing := e.complete(served, now, unknownVersion); missing {
		s.notes = append(s.notes,
			"the object lacks the uid or resourceVersion that form the event id; the API server sets them")
	}
	s.change = change{
		served: served, resource: e.watchedAs(served), operation: e.operation(), now: now, version: now.GetResourceVersion(),
	}
	switch s.operation {
	case event.Updated:
		return e.readOld(s, stdin)
	case event.Deleted:
		s.old, s.now = now, nil
	}
	return nil
}

// complete adds the fields that the API server sets and a manifest may lack: uid, resourceVersion and namespace. It
// reports whether the uid or the resourceVersion is missing.
func (e *explainer) complete(served discovery.Served, o state, version string) (missing bool) {
	if served.Namespaced && o.GetNamespace() == "" {
		o.SetNamespace(cmp.Or(e.Namespace, metav1.NamespaceDefault))
	}
	missing = o.GetUID() == "" || o.GetResourceVersion() == ""
	o.SetUID(cmp.Or(o.GetUID(), unknownUID))
	o.SetResourceVersion(cmp.Or(o.GetResourceVersion(), version))
	return missing
}

// readOld reads the previous state of a subject from the file that --old specifies.
func (e *explainer) readOld(s *subject, stdin io.Reader) error {
	states, err := readObjects(e.Old, stdin)
	if err != nil {
		return err
	}
	for _, s.old = range states {
		e.complete(s.served, s.old, "before "+unknownVersion)
		if s.old.GetName() == s.now.GetName() && s.old.GetNamespace() == s.now.GetNamespace() {
			break
		}
	}
	switch {
	case s.old.GetName() != s.now.GetName() || s.old.GetNamespace() != s.now.GetNamespace():
		return fmt.Errorf("--old: the file has no object %s/%s", s.now.GetNamespace(), s.now.GetName())
	case s.old.GetUID() != s.now.GetUID():
		return errors.New("--old: the two states have different uids, so this is not an update:" +
			" one object was deleted and another added")
	case s.old.GetResourceVersion() == s.version:
		s.notes = append(s.notes, "both states have the same resourceVersion, so `bridge run` would not see a change")
	}
	return nil
}

// readObjects reads the objects in a YAML or JSON file. Lists are replaced by their items.
func readObjects(file string, stdin io.Reader) (all []state, err error) {
	in := stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in = opened
	}
	decoder := yaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		var doc json.RawMessage
		var o unstructured.Unstructured
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(doc) > 0 {
			err = utiljson.Unmarshal(doc, &o.Object) // unlike encoding/json, it keeps large integers
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case o.Object == nil: // an empty YAML document
		case o.IsList():
			err = o.EachListItem(func(item runtime.Object) error {
				all = append(all, item.(*unstructured.Unstructured))
				return nil
			})
		default:
			all = append(all, &o)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, o := range all {
		if o.GetName() == "" {
			return nil, fmt.Errorf("%s: an object has no metadata.name", file)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: the file has no objects", file)
	}
	return all, nil
}
