package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// loadKubeconfig gives the way to the API server: the file that the configuration names, or else the pod's own
// service account, or else what kubectl would use.
func loadKubeconfig(path string) (*rest.Config, error) {
	if path == "" {
		cfg, err := rest.InClusterConfig()
		if err == nil {
			return cfg, nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("in-cluster configuration: %w", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no way to a cluster: not in a pod, and no kubeconfig found (set kubeconfig: in the configuration, or KUBECONFIG, or make ~/.kube/config)")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return cfg, nil
}

// buildSet makes the set of informers that the configuration asks for.
func (b *Bridge) buildSet(kube *rest.Config) error {
	kube = rest.CopyConfig(kube)
	kube.UserAgent = "deltabridge/" + version
	kube.WarningHandler = rest.NoWarnings{} // deprecations are for those who write objects
	b.connector = informer.NewConnector(kube.Dial)
	kube.Dial = b.connector.Dial
	var err error
	if b.client, err = informer.NewClient(kube); err != nil {
		return fmt.Errorf("client of the API server: %w", err)
	}
	kube.QPS, kube.Burst = -1, 0 // discovery is a handful of requests; priority and fairness guards the API server
	disco, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return fmt.Errorf("discovery client: %w", err)
	}
	set := informer.SetConfig{
		Client: b.client, Connector: b.connector, Discovery: disco, OnStart: b.attach, Transform: b.redaction.transform(), Logger: b.log,
		Resume: b.resume, TakeOver: b.takeOver, Bodies: b.engine.Bodies, OnRemoved: b.engine.Removed, Remembered: b.engine.Remembered, OnForget: b.engine.Forget,
		OnFirstList: func(source informer.Source, objects []*object.Object, resourceVersion string) bool {
			if !b.engine.FirstList(b.reading, source, objects, resourceVersion) {
				return false
			}
			b.enrichment.firstList(source, objects)
			return true
		},
	}
	for n := range b.cfg.Sinks {
		set.ManagedFields = set.ManagedFields || b.cfg.Sinks[n].Payload == config.PayloadChange
	}
	if set.Scopes, err = scopesOf(b.cfg); err != nil { // the configuration was checked, so there is none
		return err
	}
	b.set = informer.NewSet(set)
	return nil
}

// scopesOf gives all that is watched: what the configuration names, in its order, and what is needed besides.
func scopesOf(cfg *config.Config) ([]informer.Scope, error) {
	var scopes []informer.Scope
	add := func(watches []config.Watch, auxiliary bool) error {
		for n := range watches {
			scope, err := newScope(&watches[n])
			if err != nil {
				return err
			}
			scope.Auxiliary = auxiliary
			scopes = append(scopes, scope)
		}
		return nil
	}
	if err := add(cfg.Watch, false); err != nil {
		return nil, err
	}
	return scopes, add(cfg.Auxiliary(), true)
}

func newScope(w *config.Watch) (informer.Scope, error) {
	scope := informer.Scope{LabelSelector: w.LabelSelector, FieldSelector: w.FieldSelector}
	for _, text := range w.Resources {
		pattern, err := filter.ParsePattern(text)
		if err != nil {
			return scope, err
		}
		scope.Patterns = append(scope.Patterns, informer.Pattern{Text: text, Match: pattern.Matches, Wildcard: strings.ContainsAny(text, "*?[")})
	}
	var excluded []filter.ResourcePattern
	for _, text := range w.Exclude {
		pattern, err := filter.ParsePattern(text)
		if err != nil {
			return scope, err
		}
		excluded = append(excluded, pattern)
	}
	if len(excluded) > 0 {
		scope.Exclude = func(gvr schema.GroupVersionResource) bool {
			for _, pattern := range excluded {
				if pattern.Matches(gvr) {
					return true
				}
			}
			return false
		}
	}
	namespaces, err := filter.ParseNamespaces(w.Namespaces)
	if err != nil {
		return scope, err
	}
	switch literals, ok := namespaces.Literals(); {
	case ok && len(literals) > 0:
		scope.Namespaces = literals
	case !namespaces.All():
		sorted := slices.Compact(slices.Sorted(slices.Values(w.Namespaces))) // their order has no meaning
		scope.Accept, scope.AcceptText = namespaces.Matches, strings.Join(sorted, ",")
	}
	return scope, nil
}
