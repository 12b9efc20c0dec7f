package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// apiServer has a client for the API server and the resources that it serves. Only servedAs may be called on a nil
// *apiServer.
type apiServer struct {
	client rest.Interface
	served []discovery.Served
	uid    string // uid of the cluster; empty if reading it is not allowed
}

// connect discovers what the API server serves and reads the uid of the cluster.
func (o *Options) connect(ctx context.Context, cfg *config.Config) (*apiServer, error) {
	kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	kube.UserAgent, kube.WarningHandler = "deltabridge-explain/"+o.Version, rest.NoWarnings{}
	a := &apiServer{}
	if a.client, err = informer.NewClient(kube); err != nil {
		return nil, err
	}
	kube.QPS, kube.Burst = -1, 0
	disco, err := kubediscovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("discovery client: %w", err)
	}
	found, err := discovery.New(disco, a.client).Discover(ctx)
	if err != nil {
		return nil, err
	}
	a.served = found.Served
	a.uid, err = tracker.ReadClusterUID(ctx, a.client)
	return a, err
}

// findSubjects returns the objects that the arguments name.
func (o *Options) findSubjects(ctx context.Context, cfg *config.Config, scopes []fleet.Scope, args []string, stdin io.Reader) ([]*subject, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if len(args) == 2 {
		api, err := o.connect(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return o.readLive(ctx, cfg, api, scopes, args[0], args[1])
	}
	states, err := readObjects(args[0], stdin)
	if err != nil {
		return nil, err
	}
	var old []*object.Object
	if o.Old != "" {
		if old, err = readObjects(o.Old, stdin); err != nil {
			return nil, err
		}
		if len(states) != 1 || len(old) != 1 {
			return nil, fmt.Errorf("--old: each of the two files must have one object, but they have %d and %d",
				len(states), len(old))
		}
	}
	var api *apiServer
	var note string
	if !o.Offline && o.Resource == "" {
		if api, err = o.connect(ctx, cfg); err != nil {
			api, note = nil, "cannot query the API server: "+err.Error()
		}
	}
	var out []*subject
	for _, state := range states {
		served, guess, err := o.servedOf(state, api)
		if err != nil {
			return nil, err
		}
		s := &subject{now: o.complete(state, served), api: api}
		if len(old) > 0 {
			s.old = o.complete(old[0], served)
		}
		for _, text := range []string{note, guess} {
			if text != "" {
				s.notes = append(s.notes, text)
			}
		}
		if err := o.matchWatch(ctx, cfg, s, served, scopes, nil); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// readLive reads an object from the cluster with a list, as `bridge run` does.
func (o *Options) readLive(ctx context.Context, cfg *config.Config, api *apiServer, scopes []fleet.Scope, resource, name string) ([]*subject, error) {
	served, err := api.find(resource)
	if err != nil {
		return nil, err
	}
	namespace, rest, found := strings.Cut(name, "/")
	if !found {
		namespace, rest = o.Namespace, name
	}
	if served.Namespaced && namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	if !served.Namespaced {
		namespace = ""
	}
	gvr := served.WithVersion(servedVersion(served, scopes))
	now, err := api.get(ctx, gvr, namespace, rest, "", "")
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", served.String(), name, err)
	}
	if now == nil {
		return nil, fmt.Errorf("%s %q not found in the cluster (namespace %q)", served.String(), rest, namespace)
	}
	s := &subject{now: now, api: api}
	if o.Old != "" {
		old, err := readObjects(o.Old, nil)
		if err != nil {
			return nil, err
		}
		if len(old) != 1 {
			return nil, fmt.Errorf("--old: the file must have one object, but has %d", len(old))
		}
		s.old = o.complete(old[0], served)
	}
	return []*subject{s}, o.matchWatch(ctx, cfg, s, served, scopes, api)
}

// get reads one object with a list. It returns nil if the object does not exist or the selectors do not select it.
func (a *apiServer) get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, labelSelector, fieldSelector string) (*object.Object, error) {
	field := "metadata.name=" + name
	if fieldSelector != "" {
		field += "," + fieldSelector
	}
	lister := informer.ListWatch(a.client, gvr, namespace, nil)
	lister.ManagedFields = true // for payload: change
	found, err := lister.ListWithContext(ctx, metav1.ListOptions{LabelSelector: labelSelector, FieldSelector: field})
	if err != nil {
		return nil, err
	}
	items := found.(*object.List).Items
	if len(items) == 0 {
		return nil, nil
	}
	return items[0], nil
}

// find returns the resource with a name: a pattern as in a configuration, or a kind or plural that only one group has.
func (a *apiServer) find(name string) (discovery.Served, error) {
	var matches []discovery.Served
	pattern, err := filter.ParsePattern(strings.ToLower(name))
	if err != nil {
		return discovery.Served{}, fmt.Errorf("%s: %w", name, err)
	}
	for _, s := range a.served {
		if slices.ContainsFunc(s.Versions, func(version string) bool { return pattern.Matches(s.WithVersion(version)) }) {
			return s, nil
		}
		if strings.EqualFold(s.Resource, name) || strings.EqualFold(s.Kind, name) {
			matches = append(matches, s)
		}
	}
	switch len(matches) {
	case 0:
		return discovery.Served{}, fmt.Errorf("the cluster serves no %s that can be listed and watched", name)
	case 1:
		return matches[0], nil
	}
	var names []string
	for _, s := range matches {
		names = append(names, s.String())
	}
	return discovery.Served{}, fmt.Errorf("%s is ambiguous; use one of %s", name, strings.Join(names, ", "))
}

// servedOf returns the resource of an object from a file. note is not empty if the resource was guessed.
func (o *Options) servedOf(state *object.Object, api *apiServer) (served discovery.Served, note string, err error) {
	gvk := state.GVK()
	if gvk.Kind == "" || gvk.Version == "" {
		return served, "", errors.New("the object has no apiVersion and kind")
	}
	if s := api.servedAs(gvk); s != nil {
		return *s, "", nil
	}
	served = discovery.Served{Kind: gvk.Kind, Namespaced: state.Namespace != "" || o.Namespace != "", Versions: []string{gvk.Version}}
	if o.Resource != "" {
		pattern, err := filter.ParsePattern(o.Resource)
		if err != nil {
			return served, "", fmt.Errorf("--resource %s: %w", o.Resource, err)
		}
		served.GroupResource = schema.GroupResource{Group: pattern.Group, Resource: pattern.Resource}
		return served, "", nil
	}
	guess, _ := meta.UnsafeGuessKindToResource(gvk)
	served.GroupResource = guess.GroupResource()
	note = "the resource " + served.String() + " is guessed from the kind; set --resource if it is wrong"
	if api != nil {
		note = "the cluster does not serve the kind " + gvk.Kind + " of " + state.APIVersion() + "; " + note
	}
	return served, note, nil
}

const (
	unknownUID     = "<uid>"
	unknownVersion = "<resourceVersion>"
)

// complete sets what the API server adds to a manifest: uid, resourceVersion and, if it is missing, the namespace.
func (o *Options) complete(state *object.Object, served discovery.Served) *object.Object {
	if served.Namespaced && state.Namespace == "" {
		namespace := o.Namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		var view map[string]any
		if err := utiljson.Unmarshal(state.Raw, &view); err == nil {
			if metadata, ok := view["metadata"].(map[string]any); ok {
				metadata["namespace"] = namespace // this map is not shared
			}
			if raw, err := json.Marshal(view); err == nil {
				if with, err := object.New(raw); err == nil {
					with.Manager, state = state.Manager, with
				}
			}
		}
	}
	if state.UID == "" {
		state.UID = unknownUID
	}
	if state.ResourceVersion == "" {
		state.ResourceVersion = unknownVersion
	}
	return state
}

// servedVersion returns the version in which the resource is watched, or else the preferred version.
func servedVersion(served discovery.Served, scopes []fleet.Scope) string {
	for n := range scopes {
		if version, ok, _ := scopes[n].Covers(served, ""); ok {
			return version
		}
	}
	return served.Versions[0]
}

// matchWatch determines which entries of `watch` cover the object. If api is not nil, the API server evaluates
// selectors.
func (o *Options) matchWatch(ctx context.Context, cfg *config.Config, s *subject, served discovery.Served, scopes []fleet.Scope, api *apiServer) error {
	s.resource = served.WithVersion(servedVersion(served, scopes))
	if s.now.UID == unknownUID || s.now.ResourceVersion == unknownVersion {
		s.notes = append(s.notes,
			"the object has no uid or no resourceVersion, of which the event's id consists; the API server sets them")
	}
	if s.old != nil && s.old.UID != s.now.UID {
		return errors.New("--old: the two states have different uids, so this is not an update:" +
			" one object was deleted and another added")
	}
	if s.old != nil && s.old.Key() != s.now.Key() {
		return fmt.Errorf("--old: the file has the object %s instead of %s", s.old.Key(), s.now.Key())
	}
	if s.old != nil && s.old.ResourceVersion == s.now.ResourceVersion && s.now.ResourceVersion != unknownVersion {
		s.notes = append(s.notes, "both states have the same resourceVersion, so `bridge run` would not see a change")
	}
	for n := range scopes {
		w := &cfg.Watch[n]
		entry := Watch{Entry: n, Text: strings.Join(w.Resources, ", ")}
		if len(w.Exclude) > 0 {
			entry.Text += " without " + strings.Join(w.Exclude, ", ")
		}
		if len(w.Namespaces) > 0 {
			entry.Text += " in " + strings.Join(w.Namespaces, ", ")
		}
		_, resource, within := scopes[n].Covers(served, s.now.Namespace)
		switch {
		case !resource:
			entry.Why = "does not include " + event.GroupResource(s.resource)
		case !within && !served.Namespaced:
			entry.Why = `the object is cluster-scoped, and namespaces does not list ""`
		case !within:
			entry.Why = "does not include the namespace " + s.now.Namespace
		default:
			var err error
			if entry.Covers, entry.Why, err = selects(ctx, &scopes[n], s, api); err != nil {
				return fmt.Errorf("watch[%d]: %w", n, err)
			}
		}
		if entry.Covers && !s.watched {
			s.watched = true
		}
		s.watch = append(s.watch, entry)
	}
	labelSelector, fieldSelector := fleet.ServerSelectors(scopes, served, s.now.Namespace)
	s.selected = labelSelector != "" || fieldSelector != ""
	return nil
}

// selects reports whether the selectors of an entry select the object, and why.
func selects(ctx context.Context, scope *fleet.Scope, s *subject, api *apiServer) (covers bool, why string, err error) {
	if scope.LabelSelector == "" && scope.FieldSelector == "" {
		return true, "covers the object", nil
	}
	text := strings.TrimSpace(scope.LabelSelector + " " + scope.FieldSelector)
	if api != nil {
		found, err := api.get(ctx, s.resource, s.now.Namespace, s.now.Name, scope.LabelSelector, scope.FieldSelector)
		if err != nil {
			return false, "", fmt.Errorf("list objects selected by %s: %w", text, err)
		}
		if found == nil {
			return false, "the selector " + text + " does not select it", nil
		}
		return true, "the selector " + text + " selects it", nil
	}
	selector, err := labels.Parse(scope.LabelSelector)
	if err != nil {
		return false, "", fmt.Errorf("labelSelector %s: %w", scope.LabelSelector, err)
	}
	has, err := labelsOf(s.now.Raw)
	if err != nil {
		return false, "", err
	}
	switch {
	case !selector.Matches(has):
		return false, "the labelSelector " + scope.LabelSelector + " does not select it", nil
	case scope.FieldSelector != "":
		return true, "covers the object if the fieldSelector " + scope.FieldSelector +
			" selects it, which only the API server knows", nil
	}
	return true, "the labelSelector " + scope.LabelSelector + " selects it", nil
}

func labelsOf(raw []byte) (labels.Set, error) {
	var doc struct {
		Metadata struct {
			Labels labels.Set `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	return doc.Metadata.Labels, nil
}

// readObjects reads the objects of a YAML or JSON file. It expands Lists.
func readObjects(file string, stdin io.Reader) ([]*object.Object, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	var all []*object.Object
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var doc json.RawMessage
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF) && len(all) == 0:
			return nil, fmt.Errorf("%s: the file has no objects", file)
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(doc) == 0 || string(doc) == "null" { // an empty YAML document
			continue
		}
		found, err := objectsOf(doc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, found...)
	}
}

func objectsOf(doc []byte) ([]*object.Object, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, doc); err != nil {
		return nil, err
	}
	var list struct {
		Kind  string
		Items []json.RawMessage
	}
	if err := json.Unmarshal(compact.Bytes(), &list); err == nil && list.Kind == "List" {
		var all []*object.Object
		for _, item := range list.Items {
			found, err := objectsOf(item)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	}
	o, err := object.New(compact.Bytes())
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		return nil, errors.New("the object has no metadata.name")
	}
	return []*object.Object{o}, nil
}
