package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/rbac"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

func newRBACCommand(stdout io.Writer) *cobra.Command {
	var (
		path     string
		discover bool
		options  rbac.Options
		names    rbac.Names
	)
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the RBAC objects that a configuration requires",
		Long: "rbac prints roles and bindings for kubectl apply. They grant read access to the resources in `watch:`\n" +
			"and nothing else: in single namespaces if `namespaces:` has only plain names, otherwise in the whole\n" +
			"cluster. Secrets are included only if they are named.\n\n" +
			"RBAC has neither exclusions nor wildcards within a name. With --discover, wildcards are replaced by the\n" +
			"resources that the cluster of the kubeconfig serves now.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			if discover {
				if options.Served, err = discoverServed(cmd.Context(), cfg); err != nil {
					return err
				}
			}
			access, err := rbac.For(slices.Concat(cfg.Watch, cfg.Auxiliary()), options)
			if err != nil {
				return err
			}
			return rbac.Write(stdout, access, names)
		},
	}
	flags := cmd.Flags()
	configFlag(flags, &path)
	flags.StringVarP(&names.Namespace, "namespace", "n", "deltabridge", "namespace of the service account")
	flags.StringVar(&names.ServiceAccount, "service-account", "deltabridge", "`name` of the service account")
	flags.StringVar(&names.Name, "name", "deltabridge", "`name` of the roles and bindings")
	flags.StringSliceVar(&options.Groups, "group", nil, "API `group` of custom resources to include in \"*\" (can be repeated)")
	flags.BoolVar(&discover, "discover", false, "replace wildcards by the resources that the cluster serves now")
	cmd.MarkFlagsMutuallyExclusive("group", "discover")
	return cmd
}

// discoverServed returns all resources that the API server can list and watch, in all versions.
func discoverServed(ctx context.Context, cfg *config.Config) ([]rbac.Served, error) {
	kube, err := assemble.Kubeconfig(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("discovery client: %w", err)
	}
	_, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("discover the resources of the API server: %w", err)
	}
	var found []rbac.Served
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				found = append(found, rbac.Served{GroupVersionResource: gv.WithResource(r.Name), Namespaced: r.Namespaced})
			}
		}
	}
	if len(found) == 0 {
		return nil, errors.New("discover the resources of the API server: there are none that can be listed and watched")
	}
	return found, nil
}
