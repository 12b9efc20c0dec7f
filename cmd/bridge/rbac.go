package main

import (
	"cmp"
	"io"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/rbac"
	"github.com/spf13/cobra"
)

func newRBACCommand(stdout io.Writer) *cobra.Command {
	var (
		discover bool
		options  rbac.Options
		names    rbac.Names
	)
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the RBAC objects that a configuration requires",
		Long: "rbac prints roles and bindings for kubectl apply. They grant read access to the resources in `watch:`\n" +
			"and nothing else: in single namespaces if `namespaces:` has only plain names, otherwise in the whole\n" +
			"cluster. Secrets are included only if they are named. With `state.log:`, they also grant access to the\n" +
			"Lease of the replicas and, with `http.peers:`, let commands reach the leader from every replica. With\n" +
			"`http.ui:`, the bridge may also examine the tokens of viewers.\n\n" +
			"RBAC has neither exclusions nor wildcards within a name. With --discover, wildcards are replaced by the\n" +
			"resources that the cluster of the kubeconfig serves now.",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	file := newConfigFile(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := file.read(true)
		if err != nil {
			return err
		}
		if discover {
			_, found, err := assemble.Discover(cmd.Context(), cfg, "deltabridge-rbac/"+version)
			if err != nil {
				return err
			}
			options.Served = found
		}
		access, err := rbac.For(cfg.Reads(), options)
		if err != nil {
			return err
		}
		if cfg.State.Log != nil {
			namespace := cmp.Or(cfg.Election.Lease.Namespace, names.Namespace)
			access.GrantLease(namespace, cfg.Election.Lease.Name)
			if cfg.Audit != nil {
				access.GrantAuditLease(namespace, assemble.AuditLease(cfg.Election.Lease))
			}
		}
		switch {
		case len(cfg.HTTP.Peers) > 0:
			access.GrantCommands()
		case cfg.HTTP.UI:
			access.GrantReviews()
		}
		return rbac.Write(stdout, access, names)
	}
	flags.StringVarP(&names.Namespace, "namespace", "n", "deltabridge",
		"namespace of the service account and, by default, the Lease")
	flags.StringVar(&names.ServiceAccount, "service-account", "deltabridge", "`name` of the service account")
	flags.StringVar(&names.Name, "name", "deltabridge", "`name` of the roles and bindings")
	flags.StringSliceVar(&options.Groups, "group", nil,
		"API `group` of custom resources to include in \"*\" (can be repeated)")
	flags.BoolVar(&discover, "discover", false, "replace wildcards by the resources that the cluster serves now")
	cmd.MarkFlagsMutuallyExclusive("group", "discover")
	return cmd
}
