package assemble

import (
	"context"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig returns the configuration for connecting to the API server. If path is not empty, it reads the kubeconfig
// at path. If path is empty, it uses the service account of the Pod or, outside of a Pod, the kubeconfig that kubectl
// would use.
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
	cfg, err := loadKubeconfig(path).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New(
			"not in a Pod, and there is no kubeconfig (set kubeconfig in the configuration, or KUBECONFIG, or create ~/.kube/config)",
		)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return cfg, nil
}

// Lease returns the Lease of the replicas. If the configuration does not name its namespace, this is the namespace of
// the Pod or, outside a Pod, that of the kubeconfig.
func Lease(cfg *config.Config) (config.Lease, error) {
	lease := cfg.Election.Lease
	if lease.Namespace != "" {
		return lease, nil
	}
	var err error
	if lease.Namespace, _, err = loadKubeconfig(cfg.Kubeconfig).Namespace(); err != nil {
		err = fmt.Errorf("kubeconfig: %w", err)
	}
	return lease, err
}

// loadKubeconfig returns what kubectl would read. The path may be empty.
func loadKubeconfig(path string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
}

// Discover returns a client for the configured API server, and the catalog of resources that the API server serves.
func Discover(ctx context.Context, cfg *config.Config, userAgent string) (rest.Interface, *discovery.Catalog, error) {
	kube, err := Kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	kube.UserAgent, kube.WarningHandler = userAgent, rest.NoWarnings{}
	client, err := informer.NewClient(kube)
	if err != nil {
		return nil, nil, err
	}
	found, err := discovery.New(discovery.NewClient(client), client).Discover(ctx)
	return client, found, err
}

// Watched returns the scopes that the bridge watches: all, or none if nothing uses changes.
func Watched(cfg *config.Config) []fleet.Scope {
	if !cfg.UsesChanges() {
		return nil
	}
	return Scopes(cfg)
}

// Scopes returns all scopes of the configuration: the entries of `watch` in their order, followed by the resources that only
// enrichment requires.
func Scopes(cfg *config.Config) []fleet.Scope {
	var scopes []fleet.Scope
	for n := range cfg.Watch {
		scopes = append(scopes, cfg.Watch[n].Scope())
	}
	for _, w := range cfg.Auxiliary() {
		scope := w.Scope()
		scope.Auxiliary = true
		scopes = append(scopes, scope)
	}
	return scopes
}
