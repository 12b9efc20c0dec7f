package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// This file is what the tests against the real API server share.

// watching is a running fleet with a record for each resource.
type watching struct {
	*fleet.Fleet
	t    *testing.T
	log  *observe.LogBuffer
	stop func() // ends Run and waits for it

	mu        sync.Mutex
	informers map[string][]*informer.Informer
	records   map[string]*observe.Record
	removed   []string // sources that the fleet forgot
}

// setup is what a test can change of a fleet.
type setup struct {
	fleet.Config
	Discovery kubediscovery.DiscoveryInterfaceWithContext
}

// watchScopes runs a fleet until the end of the test. edit may change its configuration first.
func watchScopes(t *testing.T, config *rest.Config, edit func(*setup), scopes ...fleet.Scope) *watching {
	t.Helper()
	w := &watching{
		t:         t,
		log:       &observe.LogBuffer{},
		informers: map[string][]*informer.Informer{},
		records:   map[string]*observe.Record{},
	}
	client, err := informer.NewClient(config)
	observe.Must(t, err)
	httpClient := client.(*rest.RESTClient).Client
	sc := setup{fleet.Config{
		Scopes: scopes, Client: client,
		Logger:  slog.New(slog.NewTextHandler(w.log, nil)),
		OnStart: w.start,
	}, discovery.NewClient(client)}
	state := newMemory()
	state.removed = func(source string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.removed = append(w.removed, source)
	}
	sc.State = state
	if edit != nil {
		edit(&sc)
	}
	w.Fleet = fleet.NewWithDiscovery(sc.Config, sc.Discovery)
	w.stop = runUntil(t, w.Run, httpClient)
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Logf("log:\n%s", w.log)
		}
	})
	return w
}

// runUntil runs a part until the returned function is called, which waits for its end.
func runUntil(t *testing.T, run func(context.Context) error, httpClient *http.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceFunc(func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(observe.Soon):
			t.Errorf("did not end within %s", observe.Soon)
		}
		httpClient.CloseIdleConnections()
	})
}

func (w *watching) start(i *informer.Informer) {
	name := i.Resource().GroupResource().String()
	i.AddEventHandler(w.record(name))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.informers[name] = append(w.informers[name], i)
}

// record of a resource, over all its informers.
func (w *watching) record(resource string) *observe.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.records[resource] == nil {
		w.records[resource] = &observe.Record{}
	}
	return w.records[resource]
}

// started gives the informers that were ever started for a resource.
func (w *watching) started(resource string) []*informer.Informer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.informers[resource])
}

func (w *watching) waitReady() {
	w.t.Helper()
	observe.Eventually(w.t, func() error {
		if reasons := w.NotReady(); len(reasons) > 0 {
			return fmt.Errorf("not ready: %q", reasons)
		}
		return nil
	})
}

// waitRemoved waits until the resource is gone.
func (w *watching) waitRemoved(resource string) {
	w.t.Helper()
	observe.Eventually(w.t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !slices.Contains(w.removed, resource) {
			return fmt.Errorf("%s is not removed: %v are", resource, w.removed)
		}
		return nil
	})
}

func (w *watching) isRemoved(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.removed, resource)
}

// kube is an administrator.
type kube struct {
	*kubernetes.Clientset
	*dynamic.DynamicClient
	t *testing.T
}

func newKube(t *testing.T) *kube {
	t.Helper()
	config := cluster.Shared(t).RESTConfig()
	typed, err := kubernetes.NewForConfig(config)
	observe.Must(t, err)
	anything, err := dynamic.NewForConfig(config)
	observe.Must(t, err)
	return &kube{typed, anything, t}
}

// namespace makes a new one.
func (k *kube) namespace() string {
	k.t.Helper()
	ns, err := k.CoreV1().
		Namespaces().
		Create(k.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "informer-"}}, metav1.CreateOptions{})
	observe.Must(k.t, err)
	return ns.Name
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func (k *kube) create(namespace, name string) {
	k.t.Helper()
	_, err := k.CoreV1().ConfigMaps(namespace).Create(k.t.Context(), configMap(name, nil), metav1.CreateOptions{})
	observe.Must(k.t, err)
}

func (k *kube) delete(namespace, name string) {
	k.t.Helper()
	observe.Must(k.t, k.CoreV1().ConfigMaps(namespace).Delete(k.t.Context(), name, metav1.DeleteOptions{}))
}

var crds = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// kind is a custom resource of its own group, namespaced.
type kind struct{ resource, group string }

func (c kind) name() string { return c.resource + "." + c.group }

func (c kind) in(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: c.group, Version: version, Resource: c.resource}
}

// definition has the given versions; the served ones are said, and the first one is stored.
func (c kind) definition(served map[string]bool, versions ...string) *unstructured.Unstructured {
	var list []any
	for n, version := range versions {
		list = append(list, map[string]any{
			"name":    version,
			"served":  served == nil || served[version],
			"storage": n == 0,
			"schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			},
		})
	}
	singular := strings.TrimSuffix(c.resource, "s")
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": c.name()},
		"spec": map[string]any{
			"group":    c.group,
			"scope":    "Namespaced",
			"versions": list,
			"names": map[string]any{
				"plural":   c.resource,
				"singular": singular,
				"kind":     strings.ToUpper(singular[:1]) + singular[1:],
			},
		},
	}}
}

func (k *kube) define(c kind, served map[string]bool, versions ...string) {
	k.t.Helper()
	_, err := k.Resource(crds).Create(k.t.Context(), c.definition(served, versions...), metav1.CreateOptions{})
	observe.Must(k.t, err)
}

// redefine replaces the spec, and adds an annotation so that something changes in any case.
func (k *kube) redefine(c kind, served map[string]bool, versions ...string) {
	k.t.Helper()
	d, err := k.Resource(crds).Get(k.t.Context(), c.name(), metav1.GetOptions{})
	observe.Must(k.t, err)
	d.Object["spec"] = c.definition(served, versions...).Object["spec"]
	d.SetAnnotations(map[string]string{"edited": time.Now().String()})
	_, err = k.Resource(crds).Update(k.t.Context(), d, metav1.UpdateOptions{})
	observe.Must(k.t, err)
}

// undefine deletes the definition and waits until it is gone, with all objects. The API server retries its clean-up
// ever more rarely if the definition was new.
func (k *kube) undefine(c kind) {
	k.t.Helper()
	observe.Must(k.t, k.Resource(crds).Delete(k.t.Context(), c.name(), metav1.DeleteOptions{}))
	observe.EventuallyWithin(k.t, 3*time.Minute, func() error {
		if _, err := k.Resource(crds).Get(k.t.Context(), c.name(), metav1.GetOptions{}); err == nil {
			return errors.New("the definition is still there")
		}
		return nil
	})
}

// put creates or changes a custom object, as soon as the API server serves its resource.
func (k *kube) put(c kind, version, name, value string) {
	k.t.Helper()
	api := k.Resource(c.in(version)).Namespace("default")
	observe.Eventually(k.t, func() error {
		o, err := api.Get(k.t.Context(), name, metav1.GetOptions{})
		if err == nil {
			o.Object["value"] = value
			_, err = api.Update(k.t.Context(), o, metav1.UpdateOptions{})
			return err
		}
		singular := strings.TrimSuffix(c.resource, "s")
		_, err = api.Create(k.t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": c.group + "/" + version, "kind": strings.ToUpper(singular[:1]) + singular[1:],
			"metadata": map[string]any{"name": name}, "value": value,
		}}, metav1.CreateOptions{})
		return err
	})
}

// proxied is the shared cluster through a proxy.
func proxied(t *testing.T) (*sinktest.Proxy, *rest.Config) {
	t.Helper()
	config := cluster.Shared(t).RESTConfig()
	p := sinktest.NewProxy(t, strings.TrimPrefix(config.Host, "https://"))
	config.Host = "https://" + p.Addr()
	// A transport of its own: others share one by their configuration.
	config.Dial = nil
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return rt })
	return p, config
}

// restricted gives the configuration of somebody who may do what the rules say.
func restricted(t *testing.T, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	path, err := cluster.Shared(t).RestrictedKubeconfig(t.Context(), rules)
	observe.Must(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	observe.Must(t, err)
	return config
}
