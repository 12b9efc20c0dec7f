package explain

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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// subject is an object to explain, together with what is known about it.
type subject struct {
	Report
	old, now *object.Object // old is nil unless the operation is an update
	live     bool           // whether now was read from the cluster
	resource schema.GroupVersionResource
	selected bool          // whether the informer that watches the object has selectors
	index    *enrich.Index // the objects that enrichment knows; nil if no sink requires it
	// namespaces contains the labels of the object's namespace, if a filter requires them and they are known.
	namespaces filter.Namespaces
}

// findSubjects returns the objects that the arguments name.
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
	if e.Old != "" && len(states) != 1 {
		return nil, fmt.Errorf("--old: each of the two files must have one object, but %s has %d", args[0], len(states))
	}
	var notes []string
	if !e.Offline && e.Resource == "" {
		if err := e.connect(ctx); err != nil {
			notes = []string{"cannot query the API server: " + err.Error()}
		}
	}
	for _, state := range states {
		served, guess, err := e.servedOf(state)
		if err != nil {
			return nil, err
		}
		s := &subject{Report: Report{Notes: slices.Concat(notes, guess)}}
		if s.now, err = e.complete(state, served); err == nil {
			err = e.finish(ctx, s, served, stdin)
		}
		if err != nil {
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
	s := &subject{live: true}
	if s.now, err = e.get(ctx, e.watchedAs(served), namespace, short, ""); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", served.String(), name, err)
	}
	if s.now == nil {
		return nil, fmt.Errorf("%s %q not found in the cluster (namespace %q)", served.String(), short, namespace)
	}
	return s, e.finish(ctx, s, served, nil)
}

// servedOf returns the resource of an object from a file. If it has to guess the resource from the kind, it returns a
// note.
func (e *explainer) servedOf(state *unstructured.Unstructured) (served discovery.Served, note []string, err error) {
	gvk := state.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" {
		return served, nil, errors.New("an object in the file lacks apiVersion or kind")
	}
	if served, ok := e.servedAs(gvk); ok {
		return served, nil, nil
	}
	served = discovery.Served{
		Kind:       gvk.Kind,
		Namespaced: state.GetNamespace() != "" || e.Namespace != "",
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
		text = "the cluster does not serve the kind " + gvk.Kind + " of " + state.GetAPIVersion() + "; " + text
	}
	return served, []string{text}, nil
}

// Placeholders in a report for values that explain does not know.
const (
	unknownUID          = "<uid>"
	unknownVersion      = "<resourceVersion>"
	unknownInstallation = "<installation>"
)

// complete adds the fields that the API server sets and a manifest may lack: uid, resourceVersion and namespace.
func (e *explainer) complete(state *unstructured.Unstructured, served discovery.Served) (*object.Object, error) {
	if served.Namespaced && state.GetNamespace() == "" {
		state.SetNamespace(cmp.Or(e.Namespace, metav1.NamespaceDefault))
	}
	raw, err := json.Marshal(state.Object)
	if err != nil {
		return nil, err
	}
	o, err := object.New(raw)
	if err != nil {
		return nil, err
	}
	o.UID, o.ResourceVersion = cmp.Or(o.UID, unknownUID), cmp.Or(o.ResourceVersion, unknownVersion)
	return o, nil
}

// watchedAs returns the resource with the version that the bridge watches. If the bridge does not watch the resource,
// watchedAs returns the preferred version.
func (e *explainer) watchedAs(served discovery.Served) schema.GroupVersionResource {
	for n := range e.scopes {
		if version, _ := e.scopes[n].Covers(served, ""); version != "" {
			return served.WithVersion(version)
		}
	}
	return served.WithVersion(served.Versions[0])
}

// finish adds the previous state to a subject, and everything to its report that does not depend on sinks.
func (e *explainer) finish(ctx context.Context, s *subject, served discovery.Served, stdin io.Reader) error {
	s.resource, s.Operation = e.watchedAs(served), e.operation.String()
	s.Object = Object{
		Resource: event.GroupResource(s.resource), APIVersion: s.now.APIVersion(), Kind: s.now.Kind(),
		Namespace: s.now.Namespace, Name: s.now.Name, ResourceVersion: s.now.ResourceVersion, Bytes: len(s.now.Raw),
	}
	if s.now.UID == unknownUID || s.now.ResourceVersion == unknownVersion {
		s.Notes = append(s.Notes,
			"the object lacks the uid or resourceVersion that form the event id; the API server sets them")
	}
	if err := e.readOld(s, served, stdin); err != nil {
		return err
	}
	for n := range e.scopes {
		entry, err := e.covers(ctx, n, s, served)
		if err != nil {
			return fmt.Errorf("watch[%d]: %w", n, err)
		}
		s.Watch, s.Watched = append(s.Watch, entry), s.Watched || entry.Covers
	}
	labelSelector, fieldSelector := fleet.ServerSelectors(e.scopes, served, s.now.Namespace)
	s.selected = labelSelector != "" || fieldSelector != ""
	return nil
}

// readOld reads the previous state of a subject from the file that --old specifies.
func (e *explainer) readOld(s *subject, served discovery.Served, stdin io.Reader) error {
	if e.Old == "" {
		return nil
	}
	states, err := readObjects(e.Old, stdin)
	if err != nil {
		return err
	}
	if len(states) != 1 {
		return fmt.Errorf("--old: the file must have one object, but has %d", len(states))
	}
	if s.old, err = e.complete(states[0], served); err != nil {
		return err
	}
	switch {
	case s.old.UID != s.now.UID:
		return errors.New("--old: the two states have different uids, so this is not an update:" +
			" one object was deleted and another added")
	case s.old.Key() != s.now.Key():
		return fmt.Errorf("--old: the file contains object %s, not %s", s.old.Key(), s.now.Key())
	case s.old.ResourceVersion == s.now.ResourceVersion && s.now.ResourceVersion != unknownVersion:
		s.Notes = append(s.Notes, "both states have the same resourceVersion, so `bridge run` would not see a change")
	}
	return nil
}

// Coverage reports for each entry of `watch` whether it covers an object that is not in the cluster. Fields that only
// the API server can evaluate count as selecting the object.
func Coverage(cfg *config.Config, served discovery.Served, o *object.Object) (entries []Watch, err error) {
	e := &explainer{cfg: cfg, scopes: assemble.Scopes(cfg)[:len(cfg.Watch)]}
	s := &subject{now: o}
	s.Object.Resource = event.GroupResource(e.watchedAs(served))
	for n := range e.scopes {
		entry, err := e.covers(context.Background(), n, s, served) // sends no request, because the object is not live
		if err != nil {
			return nil, fmt.Errorf("watch[%d]: %w", n, err)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// covers reports whether an entry of `watch` covers the object. The result contains the reason.
func (e *explainer) covers(ctx context.Context, n int, s *subject, served discovery.Served) (entry Watch, err error) {
	w := &e.cfg.Watch[n]
	entry = Watch{Entry: n, Text: strings.Join(w.Resources, ", ")}
	if len(w.Exclude) > 0 {
		entry.Text += " without " + strings.Join(w.Exclude, ", ")
	}
	if len(w.Namespaces) > 0 {
		entry.Text += " in " + strings.Join(w.Namespaces, ", ")
	}
	version, within := e.scopes[n].Covers(served, s.now.Namespace)
	switch {
	case version == "":
		entry.Why = "does not include " + s.Object.Resource
	case !within && !served.Namespaced:
		entry.Why = `the object is cluster-scoped, and namespaces does not list ""`
	case !within:
		entry.Why = "does not include the namespace " + s.now.Namespace
	default:
		entry.Covers, entry.Why, err = e.selects(ctx, &e.scopes[n], s)
	}
	return entry, err
}

// selects reports whether the selectors of an entry select the object, and returns the reason. Field selectors are
// evaluated by the API server.
func (e *explainer) selects(ctx context.Context, scope *fleet.Scope, s *subject) (covers bool, why string, err error) {
	if scope.LabelSelector == "" && scope.FieldSelector == "" {
		return true, "covers the object", nil
	}
	selector, err := labels.Parse(scope.LabelSelector)
	if err != nil {
		return false, "", err
	}
	covers = selector.Matches(labels.Set(s.now.GetLabels()))
	if covers && scope.FieldSelector != "" {
		if !s.live {
			return true, "covers the object if the fieldSelector " + scope.FieldSelector +
				" selects it, which only the API server knows", nil
		}
		found, err := e.get(ctx, s.resource, s.now.Namespace, s.now.Name, scope.FieldSelector)
		if err != nil {
			return false, "", fmt.Errorf("list objects selected by %s: %w", scope.FieldSelector, err)
		}
		covers = found != nil
	}
	text := "the selector " + strings.TrimSpace(scope.LabelSelector+" "+scope.FieldSelector)
	if !covers {
		return false, text + " does not select it", nil
	}
	return true, text + " selects it", nil
}

// readObjects reads the objects in a YAML or JSON file. Lists are replaced by their items.
func readObjects(file string, stdin io.Reader) (all []*unstructured.Unstructured, err error) {
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
		var state unstructured.Unstructured
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(doc) > 0 {
			err = utiljson.Unmarshal(doc, &state.Object) // unlike encoding/json, it keeps large integers
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case state.Object == nil: // an empty YAML document
		case state.IsList():
			err = state.EachListItem(func(item runtime.Object) error {
				all = append(all, item.(*unstructured.Unstructured))
				return nil
			})
		default:
			all = append(all, &state)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, state := range all {
		if state.GetName() == "" {
			return nil, fmt.Errorf("%s: an object has no metadata.name", file)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: the file has no objects", file)
	}
	return all, nil
}
