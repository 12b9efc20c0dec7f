package assemble

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig gives the way to the API server: the file that the configuration names, or else the pod's own
// service account, or else what kubectl would use.
func Kubeconfig(path string) (*rest.Config, error) {
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

// Scopes gives all that is watched: what the configuration names, in its order, and what is needed besides.
func Scopes(cfg *config.Config) ([]fleet.Scope, error) {
	var scopes []fleet.Scope
	add := func(watches []config.Watch, auxiliary bool) error {
		for n := range watches {
			scope, err := NewScope(&watches[n])
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

// NewScope is what an entry of `watch` selects.
func NewScope(w *config.Watch) (fleet.Scope, error) {
	scope := fleet.Scope{LabelSelector: w.LabelSelector, FieldSelector: w.FieldSelector}
	for _, text := range w.Resources {
		pattern, err := filter.ParsePattern(text)
		if err != nil {
			return scope, err
		}
		scope.Patterns = append(scope.Patterns, fleet.Pattern{Text: text, Match: pattern.Matches, Wildcard: strings.ContainsAny(text, "*?[")})
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
